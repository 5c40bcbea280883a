"""Who may come in: every endpoint asks here first, and nowhere else."""

from collections.abc import Awaitable
from dataclasses import dataclass

from edge.access.principals import Principals
from edge.access.running_keys import Standing
from edge.access.saturation import Saturation
from edge.access.wrong_keys import Strangers
from edge.billing.metering import Metering
from edge.principal import Principal, Scope
from edge.step_timer import Laps
from edge.wire.asgi import Headers, HttpScope
from edge.wire.body_reader import announced_tokens, guess_tokens
from edge.wire.rate_headers import Admission
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.admission import Place

# By itself, since to look it up in its enumeration takes longer than all else that is done with it.
INFERENCE = Scope.SCOPE_INFERENCE


@dataclass(frozen=True, slots=True)
class Visit:
    """Of one chat that was let in."""

    principal: Principal
    standing: Standing
    admission: Admission
    laps: Laps


class Entrance:
    def __init__(
        self, principals: Principals, strangers: Strangers, saturation: Saturation, metering: Metering
    ) -> None:
        self._principals = principals
        self._strangers = strangers
        self._saturation = saturation
        self._metering = metering

    async def admit(self, scope: HttpScope, needed: "Scope.ValueType | None") -> Principal:
        principal = await self.identify(scope, needed)
        await self._metering.admit(principal)
        return principal

    def refusal(self, headers: Headers) -> tuple[LegatoError, Headers] | None:
        """Of a chat for which there is no room, as `chat` would raise it, told without anything having begun; and what
        is left of the key's rates."""
        if not self._saturation.is_reached or self._principals.maintenance.is_on:
            return None
        principal = self._principals.recall(headers)
        if principal is None or not principal.may(INFERENCE):
            return None
        rates = self._metering.last_rates(principal)
        error = None if rates is None else self._saturation.refusal(principal.key_id)
        return None if error is None or rates is None else (error, rates)

    async def rates(self, scope: HttpScope, error: LegatoError) -> Headers:
        """What a chat that was not let in is told of its key's rates; and who has no key, of wrong keys'."""
        if error.reason is Reason.RATE_LIMITED:
            # It says so itself.
            return []
        principal = self._principals.recall(scope["headers"])
        if principal is None:
            return self._strangers.rates(scope)
        if error.reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE):
            # Metering was waited for already, or may be what is being worked on.
            return self._metering.last_rates(principal) or []
        try:
            return await self._metering.rates(principal)
        except LegatoError:
            # Metering is away, and has never been asked about this key.
            return []

    # A chat asks in this order, by what refusing costs; and who is refused for want of room has taken nothing from its
    # rate: identify, require_service, standing, place, take.

    def require_service(self) -> None:
        """Raises MAINTENANCE while no new chats are let in. It is as new as what is known of the key."""
        self._principals.maintenance.raise_if_on()

    def standing(self, principal: Principal) -> Standing:
        """For as long as the chat runs: `with entrance.standing(principal) as standing: …`."""
        return self._principals.standing(principal)

    def place(self, principal: Principal) -> Place:
        """For as long as the chat runs: `with entrance.place(principal): …`. Raises SATURATED."""
        return self._saturation.enter(principal.key_id)

    def take(self, principal: Principal, scope: HttpScope) -> Awaitable[Admission]:
        """One chat from the key's rates; raises RATE_LIMITED."""
        return self._metering.admit(principal, announced_tokens(scope))

    async def take_body(self, visit: Visit, body_bytes: int) -> None:
        """A body whose size was not announced counts by what has come, before anything is done with it; raises
        RATE_LIMITED."""
        await self._metering.take_tokens(visit.principal, visit.admission, guess_tokens(body_bytes))

    async def identify(self, scope: HttpScope, needed: "Scope.ValueType | None") -> Principal:
        """Whose key it is, and that it may do this; None: every key may. Wrong keys are counted by where they come
        from."""
        headers = scope["headers"]
        try:
            principal = self._principals.recall(headers) or await self._principals.authenticate(headers)
        except LegatoError as error:
            if error.reason is Reason.KEY_INVALID:
                self._strangers.count(scope)
            raise
        if needed is not None:
            principal.require(needed)
        return principal
