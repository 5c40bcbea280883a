"""The client side of an exchange: one stream for all calls, opened again whenever it breaks."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.errors import LegatoError, Reason, from_status, internal_error, unavailable
from services.chassis.exchange.calls import ClientCall, Consumer, UnaryCall, arrive
from services.chassis.exchange.methods import Encodable, ResponseT
from services.chassis.exchange.outbox import (
    ExchangeMessage,
    Opening,
    Outbox,
    PartialPayloads,
    delay_send,
    read_packed,
)
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import current_span

# Interval of heartbeats. Heartbeats are counted rather than time, so that our own stall is not taken for the other
# side's silence.
ALIVE_EVERY_S = 1.0
# How many of ours may go unanswered before new calls go elsewhere: the other side is stopped, or has much to do.
SILENT_SIGNS = 2
# How many before it counts as lost, with the streams that it serves: they cannot be had elsewhere, and a prompt that is
# called again is paid again. A process that ended has closed the connection.
LOST_SIGNS = 30
RECONNECT_AFTER_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class ExchangeBroken(LegatoError):
    """The connection was lost, and the call with it; whether the other side acted on it is unknown."""

    def __init__(self, service: str) -> None:
        super().__init__(Reason.UNAVAILABLE, unavailable(service).sentence, retry_after_s=1)


class CallsInFlight:
    """The number of calls in flight of several exchanges. They keep it, since they ask for it with each message."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class ExchangeClient:
    """Keeps one exchange with one replica of a service open, and reconnects when it breaks."""

    def __init__(
        self,
        service: str,
        open_stream: Callable[[], "grpc.aio.StreamStreamCall[Any, Any]"],
        request_type: Callable[..., ExchangeMessage],
        log: Log,
        message_items: Histogram | None = None,
        in_flight: CallsInFlight | None = None,
        on_silence: Callable[[], None] | None = None,
        *,
        has_packed: bool = False,
    ) -> None:
        """Prepares an exchange; `message_items` counts the items per message. `in_flight` is shared with others, if the
        delay between messages depends on their calls too. `on_silence` is called whenever the other side falls silent.
        `has_packed` tells that the other side's messages have a packed part."""
        self._service = service
        self._has_packed = has_packed
        self._in_flight = in_flight or CallsInFlight()
        self._message_items = message_items or Histogram(BATCH_BOUNDS)
        self._open_stream = open_stream
        self._request_type = request_type
        self._log = log
        self._on_silence = on_silence
        self._calls: dict[int, UnaryCall[Any] | ClientCall[Any]] = {}
        self._parts = PartialPayloads()
        self._last_call_id = 0
        self._outbox: Outbox[ExchangeMessage] | None = None
        # Openings of calls that are not traced, by method.
        self._openings: dict[str, Opening] = {}
        # Tells whether new calls may be opened. A stalled process accepts connections, so it must have sent data.
        self.usable = False
        self._going_away = False
        self._is_dismissed = False
        self._unheard_signs = 0
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def is_leaving(self) -> bool:
        """Returns whether the other side is shutting down, but still answers."""
        return self._outbox is not None and self._going_away

    @property
    def load(self) -> int:
        return len(self._calls)

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._keeper = asyncio.create_task(self._keep_open())

    async def connected(self) -> None:
        await self._connected.wait()

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def call(
        self, method: str, request: Encodable, response_type: type[ResponseT], timeout_s: float
    ) -> "asyncio.Future[ResponseT]":
        """Starts a unary call; the future fails if no response comes in time."""
        question = UnaryCall(self, self._loop, response_type)
        question.call_id = self._begin(method, request, question)
        question.set(self._loop.time() + timeout_s)
        return question.answer

    def give_up(self, call_id: int) -> None:
        """Fails a unary call whose time is over."""
        question = self._calls.pop(call_id, None)
        self._parts.pop(call_id, None)
        if question is not None:
            self._in_flight.count -= 1
            question.fail(unavailable(self._service))

    def open(
        self,
        method: str,
        request: Encodable,
        response_type: type[ResponseT],
        unpack: Callable[[bytes], ResponseT] | None = None,
        consumer: Consumer | None = None,
    ) -> ClientCall[ResponseT]:
        """Starts a streaming call. The caller reads it to its end, or cancels it. `unpack` is set if some of its
        responses may come in a packed form; `consumer` handles some where they arrive."""
        call = ClientCall(self, response_type, unpack, consumer)
        call.call_id = self._begin(method, request, call)
        return call

    def _begin(self, method: str, request: Encodable, call: UnaryCall[Any] | ClientCall[Any]) -> int:
        if self._outbox is None:
            raise ExchangeBroken(self._service)
        self._last_call_id = call_id = self._last_call_id + 1
        self._calls[call_id] = call
        self._in_flight.count += 1
        span = current_span()
        opening = self._openings.get(method) if span is None else Opening(method, span.traceparent)
        if opening is None:
            opening = self._openings[method] = Opening(method, "")
        self._outbox.put(call_id, pb.ITEM_KIND_OPEN, request.SerializeToString(), opening)
        return call_id

    def send(self, call_id: int, payload: bytes) -> None:
        """Sends one more message of a running call."""
        if self._outbox is not None and call_id in self._calls:
            self._outbox.put(call_id, pb.ITEM_KIND_MESSAGE, payload)

    def credit(self, call_id: int, credit_bytes: int) -> None:
        """Grants a running call's sender more flow-control credit."""
        if self._outbox is not None and call_id in self._calls:
            self._outbox.put_control(Item(call_id=call_id, kind=pb.ITEM_KIND_CREDIT, credit_bytes=credit_bytes))

    def forget(self, call_id: int) -> None:
        """Cancels a call; the other side is told, unless the call was never sent."""
        self._parts.pop(call_id, None)
        if self._calls.pop(call_id, None) is None:
            return
        self._in_flight.count -= 1
        if self._outbox is None:
            return
        if not self._outbox.drop(call_id):
            self._outbox.put_control(Item(call_id=call_id, kind=pb.ITEM_KIND_CANCEL))

    async def _keep_open(self) -> None:
        failures = 0
        while True:
            stream, outbox = self._open_stream(), Outbox(self._request_type, self._message_items)
            # Separate tasks: cancelling a stream cancels its reader, which must not be this task.
            reader = asyncio.create_task(self._read(stream, outbox))
            writer = asyncio.create_task(self._write(stream, outbox))
            watch = asyncio.create_task(self._watch(outbox))
            try:
                # Not the writer: it fails as soon as the other side ends, when its last messages may still be unread.
                await asyncio.wait((reader, watch), return_when=asyncio.FIRST_COMPLETED)
            finally:
                # Otherwise the other side would never learn that we left.
                stream.cancel()
                for part in (reader, writer, watch):
                    part.cancel()
                outcomes = await asyncio.gather(reader, writer, watch, return_exceptions=True)
                failures = 0 if self._outbox is outbox else failures + 1
                self._break_off()
            self._log_faults(outcomes)
            await asyncio.sleep(RECONNECT_AFTER_S[min(failures, len(RECONNECT_AFTER_S) - 1)])

    async def _read(self, stream: "grpc.aio.StreamStreamCall[Any, Any]", outbox: Outbox[ExchangeMessage]) -> None:
        await stream.wait_for_connection()
        self._outbox = outbox
        self._going_away = self._is_dismissed = False
        self._unheard_signs = 0
        self._connected.set()
        has_packed = self._has_packed
        # Read by the iterator: after a failed write, `stream.read()` returns nothing, even if messages have arrived.
        async for response in stream:
            self._unheard_signs = 0
            self.usable = not self._going_away
            if has_packed and (packed := response.packed):
                arrive(self._calls, read_packed(packed))
            for item in response.items:
                self._receive(item)
            if self._is_dismissed:
                return

    async def _write(self, stream: "grpc.aio.StreamStreamCall[Any, Any]", outbox: Outbox[ExchangeMessage]) -> None:
        while (message := await outbox.next_message()) is not None:
            await stream.write(message)
            await delay_send(self._in_flight.count)

    async def _watch(self, outbox: Outbox[ExchangeMessage]) -> None:
        """Sends heartbeats; returns when the other side counts as lost."""
        await self._connected.wait()
        is_silent = False
        while self._unheard_signs < LOST_SIGNS:
            if is_silent is not (self._unheard_signs >= SILENT_SIGNS):
                is_silent = not is_silent
                if is_silent:
                    self._fall_silent()
                else:
                    self._log.info("exchange.heard_again", name=self._service)
            self._unheard_signs += 1
            outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
            await asyncio.sleep(ALIVE_EVERY_S)
        self._log.warning("exchange.lost", name=self._service)

    def _fall_silent(self) -> None:
        """Has new calls go elsewhere, and unary calls, which may be repeated. The next message ends the silence."""
        self._log.warning("exchange.silent", name=self._service)
        if self._on_silence is not None:
            self._on_silence()
        self.usable = False
        for call_id, call in list(self._calls.items()):
            if isinstance(call, UnaryCall):
                self.forget(call_id)
                call.fail(ExchangeBroken(self._service))

    def _log_faults(self, outcomes: Iterable[BaseException | None]) -> None:
        """Logs unexpected exceptions; broken connections are normal."""
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, grpc.RpcError | asyncio.InvalidStateError):
                self._log.failure("exchange.failed", outcome, name=self._service)

    def _break_off(self) -> None:
        self._outbox = None
        self.usable = False
        self._connected.clear()
        calls, self._calls = self._calls, {}
        self._in_flight.count -= len(calls)
        self._parts = PartialPayloads()
        for call in calls.values():
            call.fail(ExchangeBroken(self._service))

    def _receive(self, item: Item) -> None:
        kind = item.kind
        if kind == pb.ITEM_KIND_GOING_AWAY:
            self._going_away = True
            self.usable = False
            if self._outbox is not None:
                # Acknowledged: from here on calls are opened here only if no other replica is usable.
                self._outbox.put_control(Item(kind=pb.ITEM_KIND_GOING_AWAY))
            return
        if kind == pb.ITEM_KIND_FAREWELL:
            self._is_dismissed = True
            return
        call = self._calls.get(item.call_id)
        if call is None:
            return
        if kind == pb.ITEM_KIND_PART:
            self._parts.add(item)
            return
        payload = self._parts.whole(item) if self._parts else item.payload
        if kind == pb.ITEM_KIND_MESSAGE:
            arrive(self._calls, ((item.call_id, payload),))
        elif kind == pb.ITEM_KIND_END:
            del self._calls[item.call_id]
            self._in_flight.count -= 1
            call.complete(payload)
        elif kind == pb.ITEM_KIND_ERROR:
            del self._calls[item.call_id]
            self._in_flight.count -= 1
            call.fail(_reported_error(payload))


def _reported_error(payload: bytes) -> LegatoError:
    try:
        return from_status(Status.FromString(payload))
    except DecodeError:
        return internal_error()
