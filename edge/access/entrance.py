"""Authenticates and admits requests of every endpoint."""

from dataclasses import dataclass
from typing import Final, Protocol

from edge.access.known_keys import RunningKey
from edge.access.principals import Principals
from edge.access.saturation import EdgeSaturation
from edge.access.wrong_keys import WrongKeyLimiter
from edge.backends.auth import Principal, Scope
from edge.billing.metering import Metering
from edge.metrics import StepTimer
from edge.wire.requests import announced_tokens, guess_tokens
from edge.wire.responses import Admission
from protos.metering.v1.metering_pb2 import GetBalanceResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import BODY, Headers, HttpScope
from services.chassis.load.fair_budget import BudgetShare, FairBudget

# Bound once, since looking it up in its enumeration takes longer than all else that is done with it.
INFERENCE = Scope.SCOPE_INFERENCE

SMALL_BODY_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class AdmittedRequest:
    """The state of an admitted chat."""

    principal: Principal
    running_key: RunningKey
    admission: Admission
    step_timer: StepTimer
    # Released when the prompt is not needed any more.
    prompt_memory: BudgetShare


class Entrance:
    def __init__(
        self,
        principals: Principals,
        wrong_key_limiter: WrongKeyLimiter,
        saturation: EdgeSaturation,
        metering: Metering,
        prompt_memory: FairBudget,
        places: FairBudget,
    ) -> None:
        self._principals = principals
        self._wrong_key_limiter = wrong_key_limiter
        self._saturation = saturation
        self._metering = metering
        # A chat calls these in the order of what a refusal costs, and a chat refused at saturation is not charged to
        # its rate limit: identify, require_service, track_key, hold_place, acquire_permit, hold_memory, charge_request.
        #
        # Raises MAINTENANCE while no new chats are admitted. This is as fresh as what is cached of the key.
        self.require_service = principals.maintenance.raise_if_on
        # Tracks the key while the chat runs: `with entrance.track_key(principal) as running_key: …`.
        self.track_key = principals.track_key
        # Returns a permit for the chat: `with entrance.acquire_permit(key_id): …`. Raises SATURATED.
        self.acquire_permit = saturation.acquire_permit
        # Returns one of the edge's connections: `with entrance.hold_place(account_id, 1): …`. Raises SATURATED if the
        # account has its share of them.
        self.hold_place = places.hold
        # Returns memory for the chat's prompt, as yet none: `with entrance.hold_memory(account_id) as memory: …`.
        self.hold_memory = prompt_memory.hold

    @property
    def is_saturated(self) -> bool:
        """Tells if a chat that arrives now may be refused."""
        return self._saturation.is_reached

    def refusal(self, headers: Headers) -> tuple[LegatoError, Headers] | None:
        """Returns the error that `chat` would raise at saturation, before anything has begun, and the key's rate
        headers; None if the request has to be processed."""
        if self._principals.maintenance.is_on:
            return None
        principal = self._principals.recall(headers)
        if principal is None or not principal.may(INFERENCE):
            return None
        rates = self._metering.last_rates(principal)
        error = None if rates is None else self._saturation.refusal(principal.key_id)
        return None if error is None or rates is None else (error, rates)

    async def rates(self, scope: HttpScope, error: LegatoError) -> Headers:
        """Returns the rate headers of a refused chat: the key's, or without a valid key those for wrong keys."""
        if error.reason is Reason.RATE_LIMITED:
            # Its error carries them already.
            return []
        principal = self._principals.recall(scope["headers"])
        if principal is None:
            return self._wrong_key_limiter.rates(scope)
        if error.reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE):
            # The request has waited for metering already, or metering may be under maintenance.
            return self._metering.last_rates(principal) or []
        try:
            return await self._metering.rates(principal)
        except LegatoError:
            # Metering is down, and nothing is cached for this key.
            return []

    async def charge_request(self, principal: Principal, scope: HttpScope) -> Admission:
        """Charges a chat to the key's rate limits; raises RATE_LIMITED. A small body that has arrived costs no more to
        check than to refuse: then the admission is pending, and asked for with the hold."""
        if BODY in scope and len(scope[BODY]) <= SMALL_BODY_BYTES:
            return self._metering.prepare_admission(principal, announced_tokens(scope))
        return await self._metering.admit(principal, announced_tokens(scope))

    async def charge_body(self, admitted: AdmittedRequest, body_bytes: int) -> None:
        """Charges a body of unknown length by its actual size, before it is processed; raises RATE_LIMITED."""
        await self._metering.take_tokens(admitted.principal, admitted.admission, guess_tokens(body_bytes))

    async def identify(self, scope: HttpScope, needed: "Scope.ValueType | None") -> Principal:
        """Authenticates the key and checks its scope; None needs no scope. Counts wrong keys by client address."""
        headers = scope["headers"]
        try:
            principal = self._principals.recall(headers) or await self._principals.authenticate(headers)
        except LegatoError as error:
            if error.reason is Reason.KEY_INVALID:
                self._wrong_key_limiter.count(scope)
            raise
        self._principals.used_networks.note(principal, scope)
        if needed is not None:
            principal.require(needed)
        return principal


# Checks that an account can pay for a large body at all, before the body is read.
#
# The cost of a chat is known when its tokens are counted, and whether it can be paid when metering holds the credit.
# But reading and checking sixteen megabytes for an account that has a cent costs CPU time that others need.

# Reading a smaller body costs no more than asking for the balance.
LARGE_BODY_BYTES: Final = 256 * 1024
# Every chat body has at least one token per this many bytes: text has one per 4, or per 12 if every letter is written
# as an escape. The rest allows for whitespace between the fields, and for fields that are ignored.
BYTES_PER_TOKEN_MOST: Final = 64

_MILLION: Final = 1_000_000


class Balances(Protocol):
    async def balance(self, account_id: str) -> GetBalanceResponse: ...


def announced_bytes(scope: HttpScope) -> int | None:
    """Returns the content-length, or None for a chunked body."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


async def check_affordable(balances: Balances, principal: Principal, body_bytes: int) -> None:
    """Raises CREDITS_EXHAUSTED if the account could not pay for such a body at any price, even with none of its credit
    held, and after what it owes. Credit may still be too low if this passes."""
    if body_bytes < LARGE_BODY_BYTES:
        return
    told = await balances.balance(principal.account_id)
    least_nanos = body_bytes // BYTES_PER_TOKEN_MOST * told.least_input_nanos_per_million // _MILLION
    if told.balance.balance_nanos - told.balance.owed_nanos < least_nanos:
        raise LegatoError(Reason.CREDITS_EXHAUSTED, "The account's credit does not cover a prompt of this size.")
