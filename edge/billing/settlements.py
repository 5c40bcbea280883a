"""Settles slots of the journal: reports each to metering until it is acknowledged, and then frees it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from google.protobuf.message import Message
from msgspec import Struct

from edge.backends.exchanges import MeteringReplica
from edge.billing.journal import Slot
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.router.v1.router_pb2 import Started
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.process import failpoints
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import STEP_BOUNDS_S, Histogram
from services.chassis.timing.deadlines import Clock
from services.rules.cost import cost_nanos

ANSWER_TIMEOUT_S = 10.0
AGAIN_AFTER_S = (0.05, 0.1, 0.2, 0.5, 1.0)
REFUSED_AGAIN_AFTER_S = 30.0


class ChatDetails(Struct, frozen=True):
    """The facts of a chat that are reported beside its slot. They are not in the journal, and unknown after a crash:
    receipts and reports can do without."""

    key_id: str = ""
    # With the columns for which the journal has no room; None: what that has.
    usage: Usage | None = None
    # The model that has begun to answer, and all calls to models once the answer has finished.
    started: Started | None = None
    calls: Sequence[ModelCall] = ()
    first_token_ms: int | None = None
    duration_ms: int | None = None
    # Set if the client left before anything was delivered: estimated tokens of its prompt, and those that a provider
    # accepted. After a crash they are not charged.
    unpaid_prompt_tokens: int = 0
    accepted_prompt_tokens: int = 0


NO_DETAILS: Final = ChatDetails()


@dataclass(frozen=True, slots=True)
class Settlement:
    """A pending settlement; `ended` when it was acknowledged or put off."""

    slot: Slot
    details: ChatDetails
    # Metering has refused it, or may, because it is of an earlier process.
    is_refused: bool
    # The failpoint between the acknowledgement and the end.
    acknowledged: str
    began_s: float
    ended: "asyncio.Future[None]"


class Settlements:
    def __init__(self, replicas: Replicas[MeteringReplica], clock: Clock, log: Log) -> None:
        self._replicas = replicas
        self._clock = clock
        self._log = log
        # Pending settlements, by request.
        self.under_way: dict[str, Settlement] = {}
        # Retries of those that metering did not acknowledge at once.
        self._retries: set[asyncio.Task[None]] = set()
        # Their durations, for the metrics.
        self.times_s = Histogram(STEP_BOUNDS_S)

    def begin(
        self,
        slot: Slot,
        details: ChatDetails = NO_DETAILS,
        acknowledged: str = "edge.settled",
        *,
        is_refused: bool = False,
    ) -> None:
        """Reports the slot, and then frees it."""
        loop = asyncio.get_running_loop()
        settlement = Settlement(slot, details, is_refused, acknowledged, self._clock.elapsed_s(), loop.create_future())
        self.under_way[slot.request_id] = settlement
        # The client's last bytes are sent first.
        loop.call_soon(self._send_at_once, settlement)

    def ends(self, account_id: str = "") -> "list[asyncio.Future[None]]":
        """Futures of all pending settlements, or of one account's."""
        settlements = self.under_way.values()
        return [each.ended for each in settlements if account_id in ("", each.slot.account_id)]

    def _send_at_once(self, settlement: Settlement) -> None:
        """Sends it without a task: nearly every settlement is acknowledged at the first attempt."""
        failpoints.hit("edge.settling" if settlement.slot.basis else "edge.voiding")
        try:
            answer = self._send(settlement)
        except LegatoError as error:
            self._send_later(settlement, error)
        else:
            answer.add_done_callback(partial(self._on_answer, settlement))

    def _on_answer(self, settlement: Settlement, answer: "asyncio.Future[Message]") -> None:
        if answer.cancelled():
            # The process shuts down. An unacknowledged settlement stays in its slot.
            return
        error = answer.exception()
        if error is not None:
            self._send_later(settlement, error)
            return
        slot = settlement.slot
        self.times_s.observe(self._clock.elapsed_s() - settlement.began_s)
        failpoints.hit(settlement.acknowledged if slot.basis else "edge.voided")
        slot.free()
        failpoints.hit("edge.freed")
        self._end(settlement)

    def _send_later(self, settlement: Settlement, error: BaseException) -> None:
        if not isinstance(error, LegatoError) or error.reason is not Reason.UNAVAILABLE:
            self._put_off(settlement, error)
            return
        task = asyncio.create_task(self._retry_until_acknowledged(settlement))
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)
        task.add_done_callback(partial(self._on_answer, settlement))

    async def _retry_until_acknowledged(self, settlement: Settlement) -> None:
        failures = 1
        while True:
            if failures % 20 == 1:
                request_id = settlement.slot.request_id
                self._log.warning("settlement.pending", request_id=request_id, attempt=failures)
            await asyncio.sleep(AGAIN_AFTER_S[min(failures, len(AGAIN_AFTER_S)) - 1])
            try:
                await self._send(settlement)
                return
            except LegatoError as error:
                if error.reason is not Reason.UNAVAILABLE:
                    raise
            failures += 1

    def _send(self, settlement: Settlement) -> "asyncio.Future[Message]":
        """Sends it; raises if no replica is connected."""
        slot = settlement.slot
        method, request, response_type = resolution(slot, settlement.details, is_refused=settlement.is_refused)
        return self._replicas.for_account(slot.account_id).call(method, request, response_type, ANSWER_TIMEOUT_S)

    def _put_off(self, settlement: Settlement, error: BaseException) -> None:
        """Logs a settlement that metering refused, for an operator. It stays in its slot and is retried later."""
        slot = settlement.slot
        self._log.failure("settlement.refused", error, request_id=slot.request_id, account_id=slot.account_id)
        again = partial(self.begin, slot, settlement.details, settlement.acknowledged, is_refused=True)
        asyncio.get_running_loop().call_later(REFUSED_AGAIN_AFTER_S, again)
        self._end(settlement)

    def _end(self, settlement: Settlement) -> None:
        del self.under_way[settlement.slot.request_id]
        settlement.ended.set_result(None)


def resolution(
    slot: Slot, details: ChatDetails = NO_DETAILS, *, is_refused: bool = False
) -> tuple[str, pb.SettleRequest | pb.VoidRequest, type[Message]]:
    """Returns the call for a slot. Without a basis nothing is charged; what was delivered then is our loss."""
    request_id, account_id, end = slot.request_id, slot.account_id, slot.end
    if not slot.basis:
        void = pb.VoidRequest(
            request_id=request_id,
            account_id=account_id,
            end=end,
            lost=slot.usage,
            unpaid_prompt_tokens=details.unpaid_prompt_tokens,
            accepted_prompt_tokens=details.accepted_prompt_tokens,
            duration_ms=details.duration_ms,
        )
        return "Void", void, pb.VoidResponse
    settle = pb.SettleRequest(
        request_id=request_id,
        account_id=account_id,
        usage=slot.usage if details.usage is None else details.usage,
        basis=slot.basis,
        end=end,
        calls=details.calls,
        duration_ms=details.duration_ms,
        first_token_ms=details.first_token_ms,
    )
    if is_refused:
        # What an operator needs to have it booked.
        settle.class_id, settle.key_id = slot.class_id, details.key_id
    if (started := details.started) is not None:
        settle.routes_version = started.routes_version
        if not details.calls and started.provider:
            settle.calls.append(_unfinished_call(started, settle.usage))
    return "Settle", settle, pb.SettleResponse


def _unfinished_call(started: Started, usage: Usage) -> ModelCall:
    """Describes the call of an answer that did not finish: what its provider counts and charges is estimated by what
    was delivered."""
    call = ModelCall(provider=started.provider, model_name=started.model_name, usage=usage)
    if started.HasField("cost"):
        cost = started.cost
        call.cost_nanos = cost_nanos(
            pb.Price(
                input_nanos_per_million=cost.input_nanos,
                cached_input_nanos_per_million=cost.cached_input_nanos,
                output_nanos_per_million=cost.output_nanos,
            ),
            usage,
        )
    return call
