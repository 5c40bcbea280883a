"""The edge's client of metering: rate limits, holds, settlements and usage."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from edge.backends.auth import Principal
from edge.backends.exchanges import MeteringReplica
from edge.backends.outage_wait import OutageQueues, OutageWait
from edge.billing.failures import FailureCounts
from edge.billing.journal import Slot
from edge.billing.rate_limits import Admission, LastRates, admit_request
from edge.billing.settlements import Settlements
from edge.wire.responses import rate_headers, reported_rate
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import Headers
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

if TYPE_CHECKING:
    from legato_protos.metering.v1.metering_pb2_grpc import MeteringServiceAsyncStub

ResponseT = TypeVar("ResponseT", bound=Message)

# Calls for answers that run, and calls that no client waits for, are retried this long.
RETRY_FOR_S = 5.0
ASK_TIMEOUT_S = 10.0
ASK_AGAIN_AFTER_S = 0.05
DELIVERIES_AT_ONCE = 1_000


class Metering:
    def __init__(
        self, replicas: Replicas[MeteringReplica], clock: Clock, log: Log, waits: OutageWait | None = None
    ) -> None:
        """Calls for new requests wait in `waits` while metering or its database is away."""
        self._replicas = replicas
        # A queue for each replica: the accounts of one do not wait for another.
        self._queues = OutageQueues(MeteringReplica.title, waits or OutageWait(), verifies_again=True)
        self._clock = clock
        self._log = log
        self.settlements = Settlements(replicas, clock, log)
        self.failures = FailureCounts(replicas, clock, log)
        # Settles or voids a slot in the background, with retries, and then frees it. The task belongs to the process,
        # not to a client that may have left.
        self.resolve = self.settlements.begin
        self._corrections: set[asyncio.Task[None]] = set()
        self._last_rates = LastRates(clock)

    async def admit(self, principal: Principal, tokens: int = 0) -> Admission:
        """Takes one request and some tokens from the key's rate limits; raises RATE_LIMITED. Tokens are an estimate,
        which the admission corrects later. A request for no tokens is not held to the token limit."""
        admission = self.prepare_admission(principal, tokens)
        await self.admit_pending(admission)
        return admission

    def prepare_admission(self, principal: Principal, tokens: int) -> Admission:
        """Returns a pending admission, to be asked for together with the hold: that spares a client one round trip."""
        return Admission(admit_request(principal, tokens), self._correct)

    async def admit_pending(self, admission: Admission) -> None:
        """Asks for an admission without a hold; raises RATE_LIMITED."""
        admission.is_asked_for = True
        admission.confirm(await self._ask_limits(admission.asked))

    def admit_later(self, admission: Admission) -> None:
        """Asks for the admission of a client that has left, in the background and without a hold."""
        self._send_later(self._admit_departed(admission))

    async def admit_longer(self, admission: Admission, tokens: int) -> None:
        """Takes the actual tokens of a request that has more than estimated. Gives back first what was taken for it, so
        that it does not block itself. Raises RATE_LIMITED; then nothing is taken."""
        if admission.is_short_of(tokens):
            await self._send_correction(admission.withdraw())
            admission.asked.tokens = tokens
            await self.admit_pending(admission)

    async def rates(self, principal: Principal) -> Headers:
        """Returns the key's rate headers and takes nothing from its limits."""
        if (headers := self.last_rates(principal)) is not None:
            return headers
        return rate_headers(await self._ask_limits(admit_request(principal, only_looks=True), waits=False))

    async def _ask_limits(self, request: pb.AdmitRequest, *, waits: bool = True) -> pb.AdmitResponse:
        ask = _asking("Admit", request, pb.AdmitResponse)
        account_id = request.account_id
        rate = await (self._wait_for(account_id, ask) if waits else self._retry(account_id, ask))
        self._last_rates.record(request.key_id, rate)
        return rate

    def last_rates(self, principal: Principal) -> Headers | None:
        """Returns the rate headers if they are cached, without a call."""
        rate = self._last_rates.recall(principal.key_id)
        return None if rate is None else rate_headers(rate)

    def reserve(
        self, request: pb.ReserveRequest, on_repeat: Callable[[], None], admission: Admission | None = None
    ) -> Awaitable[pb.ReserveResponse]:
        """Holds credit. `on_repeat` is called after a lost answer. A pending admission is asked for with it, and no
        longer pending afterwards; it still is after RATE_LIMITED, or if the answer was lost. The caller cancels it if
        the client disconnects."""
        ask: Callable[[MeteringReplica], Awaitable[pb.ReserveResponse]]
        if admission is None or not admission.is_pending:
            ask = _asking("Reserve", request, pb.ReserveResponse)
        else:
            ask = partial(self._reserve_with, admission, request)
        return self._wait_for(request.account_id, ask, on_repeat, is_followed=True)

    async def _reserve_with(
        self, admission: Admission, request: pb.ReserveRequest, replica: MeteringReplica
    ) -> pb.ReserveResponse:
        if admission.is_pending:
            request.admission.CopyFrom(admission.asked)
            admission.is_asked_for = True
        else:
            # The first attempt was admitted, though nothing could be held.
            request.ClearField("admission")
        try:
            response: pb.ReserveResponse = await replica.call("Reserve", request, pb.ReserveResponse, ASK_TIMEOUT_S)
        except LegatoError as error:
            if error.reason is not Reason.RATE_LIMITED and (rate := reported_rate(error)) is not None:
                self._confirm(admission, rate)
            raise
        if response.HasField("rate"):
            self._confirm(admission, response.rate)
        elif admission.is_pending:
            # Metering is of an earlier version, which admits in a call of its own.
            self.admit_later(admission)
        return response

    def _confirm(self, admission: Admission, rate: pb.AdmitResponse) -> None:
        self._last_rates.record(admission.asked.key_id, rate)
        admission.confirm(rate)

    def extend(self, request: pb.ExtendRequest) -> Awaitable[pb.ExtendResponse]:
        """Holds more for an answer that runs, which goes on with what it has if metering is away."""
        return self._retry(request.account_id, _asking("Extend", request, pb.ExtendResponse))

    async def checkpoint(self, slots: Iterable[Slot]) -> None:
        """Reports what running requests have delivered. Raises if a replica failed, after all were called."""
        by_replica: defaultdict[MeteringReplica, list[Slot]] = defaultdict(list)
        for slot in slots:
            by_replica[self._replicas.for_account(slot.account_id)].append(slot)
        tellings = [_send_checkpoints(replica, its_slots) for replica, its_slots in by_replica.items()]
        for outcome in await asyncio.gather(*tellings, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def settled(self) -> None:
        """Waits until every pending settlement and correction was answered. A settlement that is refused stays in its
        slot."""
        while under_way := [*self.settlements.ends(), *self._corrections]:
            await asyncio.wait(under_way)

    async def acknowledged(self, request_id: str) -> None:
        """Waits until metering knows how one request ended, with a timeout."""
        if (settlement := self.settlements.under_way.get(request_id)) is not None:
            await asyncio.wait({settlement.ended}, timeout=RETRY_FOR_S)

    async def caught_up(self, account_id: str) -> None:
        """Waits for the account's pending settlements, with a timeout, so that a client finds its last answer in the
        usage."""
        if ends := self.settlements.ends(account_id):
            await asyncio.wait(ends, timeout=RETRY_FOR_S)

    async def usage(self, request: pb.ListUsageRequest) -> pb.ListUsageResponse:
        return await self._read(request.account_id, lambda stub: stub.ListUsage(request, timeout=ASK_TIMEOUT_S))

    async def request(self, request: pb.GetRequestRequest) -> pb.GetRequestResponse:
        return await self._read(request.account_id, lambda stub: stub.GetRequest(request, timeout=ASK_TIMEOUT_S))

    async def balance(self, account_id: str, key_id: str = "") -> pb.GetBalanceResponse:
        """Returns the balance; of a key also its spend limits, and the account's."""
        request = pb.GetBalanceRequest(account_id=account_id, key_id=key_id)
        return await self._read(account_id, lambda stub: stub.GetBalance(request, timeout=ASK_TIMEOUT_S))

    def _correct(self, correction: pb.CorrectRequest) -> None:
        """Sends a correction in the background, without a retry: a rate limit is no money, so one may be lost."""
        self._send_later(self._send_correction(correction))

    def _send_later(self, sending: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(sending)
        self._corrections.add(task)
        task.add_done_callback(self._corrections.discard)

    async def _admit_departed(self, admission: Admission) -> None:
        try:
            admission.confirm(await self._ask_limits(admission.asked, waits=False))
        except LegatoError as error:
            if error.reason is not Reason.RATE_LIMITED:
                self._log.warning("correction.lost", key_id=admission.asked.key_id, error=error.reason.value)
        else:
            # It has used no tokens.
            admission.use(0)

    async def _send_correction(self, correction: pb.CorrectRequest) -> None:
        try:
            replica = self._replicas.for_account(correction.account_id)
            await replica.call("Correct", correction, pb.CorrectResponse, ASK_TIMEOUT_S)
        except LegatoError as error:
            self._log.warning("correction.lost", key_id=correction.key_id, error=error.reason.value)

    def _read(
        self, account_id: str, question: "Callable[[MeteringServiceAsyncStub], Awaitable[ResponseT]]"
    ) -> Awaitable[ResponseT]:
        """Calls by a unary RPC."""

        async def ask(replica: MeteringReplica) -> ResponseT:
            with errors_of("Metering"):
                return await question(replica.stub)

        return self._wait_for(account_id, ask)

    def _wait_for(
        self,
        account_id: str,
        ask: Callable[[MeteringReplica], Awaitable[ResponseT]],
        on_repeat: Callable[[], object] = bool,
        *,
        is_followed: bool = False,
    ) -> Awaitable[ResponseT]:
        """Calls, and waits in the queue of the account's replica while metering is away. All calls here are safe to
        repeat for the books. An Admit whose answer was lost takes from the rate limits twice, and those refill."""
        return self._queues.call(
            lambda: ask(self._replicas.for_account(account_id)),
            partial(self._replicas.home_of, account_id),
            on_repeat,
            account_id=account_id,
            is_followed=is_followed,
        )

    async def _retry(self, account_id: str, ask: Callable[[MeteringReplica], Awaitable[ResponseT]]) -> ResponseT:
        """Retries for a short while if metering is away, outside of the queues."""
        give_up_at_s = self._clock.elapsed_s() + RETRY_FOR_S
        while True:
            try:
                return await ask(self._replicas.for_account(account_id))
            except LegatoError as error:
                if error.reason is not Reason.UNAVAILABLE or self._clock.elapsed_s() >= give_up_at_s:
                    raise
            await asyncio.sleep(ASK_AGAIN_AFTER_S)


def _asking(
    method: str, request: Message, response_type: type[ResponseT]
) -> Callable[[MeteringReplica], Awaitable[ResponseT]]:
    """Returns a call by the exchange."""
    return methodcaller("call", method, request, response_type, ASK_TIMEOUT_S)


async def _send_checkpoints(replica: MeteringReplica, slots: Sequence[Slot]) -> None:
    """Sends the current totals in batches, since metering refuses too many at once, and one batch after the other:
    metering takes few at once, and other calls need room too."""
    for first in range(0, len(slots), DELIVERIES_AT_ONCE):
        request = pb.CheckpointRequest()
        for slot in slots[first : first + DELIVERIES_AT_ONCE]:
            request.deliveries.add(request_id=slot.request_id, account_id=slot.account_id, delivered=slot.usage)
        await replica.call("Checkpoint", request, pb.CheckpointResponse, ASK_TIMEOUT_S)
