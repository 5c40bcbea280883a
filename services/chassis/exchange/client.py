"""The client side of an exchange."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from google.rpc.status_pb2 import Status

from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.errors import LegatoError, Reason, from_status, internal_error, unavailable
from services.chassis.exchange.outbox import (
    MESSAGE_OVERHEAD_BYTES,
    WINDOW_BYTES,
    Opening,
    Outbox,
    PartialPayloads,
    SendDelay,
    delay_send,
    read_packed,
)
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import current_span
from services.chassis.timing.deadlines import Deadlines, Timed

ResponseT = TypeVar("ResponseT", bound=Message)

# Handles a response without waiting, and returns True; or declines it.
Consume = Callable[[ResponseT], bool]


# How much is received before its credit is returned.
_CREDIT_BYTES: Final = WINDOW_BYTES // 4


class UnaryCall(Timed, Generic[ResponseT]):
    """A call with one response. If the caller leaves, the response still arrives and is discarded."""

    __slots__ = ("_exchange", "_response_type", "answer", "call_id")

    def __init__(self, exchange: "ExchangeClient", deadlines: Deadlines, response_type: type[ResponseT]) -> None:
        super().__init__(deadlines)
        self.call_id = 0
        self.answer: asyncio.Future[ResponseT] = deadlines.loop.create_future()
        self._exchange = exchange
        self._response_type = response_type

    def on_passed(self) -> None:
        self._exchange.give_up(self.call_id)

    def arrive(self, payload: bytes) -> None:
        """Ignores messages: a unary call's only response comes with its end."""

    arrive_packed = arrive

    def complete(self, payload: bytes) -> None:
        self.clear()
        if self.answer.done():
            return
        try:
            self.answer.set_result(self._response_type.FromString(payload))
        except DecodeError:
            # Raised here it would end the exchange, and all other calls with it.
            self.answer.set_exception(internal_error())

    def fail(self, error: LegatoError) -> None:
        self.clear()
        if not self.answer.done():
            self.answer.set_exception(error)


class CallTransport(Protocol):
    """The interface of an exchange to its calls."""

    def send(self, call_id: int, payload: bytes) -> None: ...

    def credit(self, call_id: int, credit_bytes: int) -> None: ...

    def forget(self, call_id: int) -> None: ...


class ClientCall(Generic[ResponseT]):
    """A streaming call on an exchange, for one reader."""

    def __init__(
        self,
        exchange: CallTransport,
        response_type: type[ResponseT],
        unpack: Callable[[bytes], ResponseT] | None = None,
    ) -> None:
        """`unpack` parses a payload in its packed form, which begins with a zero byte."""
        self.call_id = 0
        self._exchange = exchange
        self._response_type = response_type
        self._unpack = unpack
        self._inbox: deque[bytes] = deque()
        self._ended = False
        self._error: LegatoError | None = None
        self._arrived: asyncio.Future[None] | None = None
        # Set only while the reader waits.
        self._consume: Consume[ResponseT] | None = None
        self._consume_packed: Callable[[bytes], bool] | None = None
        self._taken_bytes = 0

    async def receive(
        self, consume: Consume[ResponseT] | None = None, consume_packed: Callable[[bytes], bool] | None = None
    ) -> ResponseT | None:
        """Returns the next response, or None at the end; raises the other side's error, after all that it had sent.

        `consume` is offered each response first, at once when it arrives: one that it consumes wakes nobody. From the
        first that it declines, responses wait for the reader. `consume_packed` is offered those that arrive packed; it
        takes the payload."""
        while True:
            while self._inbox:
                payload = self._inbox.popleft()
                self._return_credit(payload)
                response = self._parse(payload)
                if consume is None or not consume(response):
                    return response
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            self._consume, self._consume_packed = consume, consume_packed
            try:
                await self._arrived
            finally:
                self._consume = self._consume_packed = None

    def send(self, request: Message) -> None:
        self._exchange.send(self.call_id, request.SerializeToString())

    def cancel(self) -> None:
        self._exchange.forget(self.call_id)

    def arrive(self, payload: bytes) -> None:
        if self._consume is None or not self._consumed(payload, self._consume):
            self._inbox.append(payload)
            self._wake()

    def arrive_packed(self, payload: bytes) -> None:
        consume = self._consume_packed
        try:
            is_consumed = consume is not None and consume(payload)
        except Exception:
            # As in `_consumed`.
            is_consumed = False
        if not is_consumed:
            self._inbox.append(payload)
            self._wake()
            return
        self._taken_bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
        if self._taken_bytes >= _CREDIT_BYTES:
            self._give_credit()

    def complete(self, payload: bytes) -> None:
        if payload:
            self._inbox.append(payload)
        self._ended = True
        self._wake()

    def fail(self, error: LegatoError) -> None:
        self._error = error
        self._wake()

    def _consumed(self, payload: bytes, consume: Consume[ResponseT]) -> bool:
        try:
            is_consumed = consume(self._parse(payload))
        except Exception:
            # Raised here it would end the exchange, and all other calls with it. The reader tries again, and gets it.
            return False
        if is_consumed:
            self._return_credit(payload)
        return is_consumed

    def _return_credit(self, payload: bytes) -> None:
        self._taken_bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
        if self._taken_bytes >= _CREDIT_BYTES:
            self._give_credit()

    def _give_credit(self) -> None:
        self._exchange.credit(self.call_id, self._taken_bytes)
        self._taken_bytes = 0

    def _parse(self, payload: bytes) -> ResponseT:
        if self._unpack is not None and payload[:1] == b"\0":
            return self._unpack(payload)
        return self._response_type.FromString(payload)

    def _wake(self) -> None:
        self._consume = self._consume_packed = None
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


# Interval of heartbeats, and how many of ours may go unanswered before the other side counts as lost. Heartbeats are
# counted rather than time, so that our own stall is not taken for the other side's silence.
ALIVE_EVERY_S = 1.0
SILENT_SIGNS = 2
RECONNECT_AFTER_S = (0.05, 0.1, 0.2, 0.5, 1.0)


class ExchangeBroken(LegatoError):
    """The connection was lost, and the call with it; whether the other side acted on it is unknown."""

    def __init__(self, service: str) -> None:
        super().__init__(Reason.UNAVAILABLE, unavailable(service).message, retry_after_s=1)


class ExchangeClient:
    """Keeps one exchange with one replica of a service open, and reconnects when it breaks."""

    def __init__(
        self,
        service: str,
        open_stream: Callable[[], "grpc.aio.StreamStreamCall[Any, Any]"],
        request_type: type[Any],
        log: Log,
        message_items: Histogram | None = None,
        load: Callable[[], int] | None = None,
        delay: SendDelay = delay_send,
        *,
        has_packed: bool = False,
    ) -> None:
        """Prepares an exchange; `message_items` counts the items per message. `load` returns the calls in flight, where
        that is not this exchange's alone. `has_packed` tells that the other side's messages have a packed part."""
        self._service = service
        self._has_packed = has_packed
        self._load = load or (lambda: self.load)
        self._delay = delay
        self._message_items = message_items or Histogram(BATCH_BOUNDS)
        self._open_stream = open_stream
        self._request_type = request_type
        self._log = log
        self._calls: dict[int, UnaryCall[Any] | ClientCall[Any]] = {}
        self._parts = PartialPayloads()
        self._last_call_id = 0
        self._outbox: Outbox | None = None
        self._going_away = False
        self._has_spoken = False
        self._is_dismissed = False
        self._unheard_signs = 0
        self._connected = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def usable(self) -> bool:
        """Tells whether new calls may be opened. A stalled process accepts connections, so it must have sent data."""
        return self._outbox is not None and self._has_spoken and not self._going_away

    @property
    def is_leaving(self) -> bool:
        """Tells whether the other side is shutting down, but still answers."""
        return self._outbox is not None and self._going_away

    @property
    def load(self) -> int:
        return len(self._calls)

    def start(self) -> None:
        self._deadlines = Deadlines()
        self._keeper = asyncio.create_task(self._keep_open())

    async def connected(self) -> None:
        await self._connected.wait()

    async def close(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    def call(
        self, method: str, request: Message, response_type: type[ResponseT], timeout_s: float
    ) -> "asyncio.Future[ResponseT]":
        """Starts a unary call; the future fails if no response comes in time."""
        question = UnaryCall(self, self._deadlines, response_type)
        question.call_id = self._begin(method, request, question)
        question.set_within(timeout_s)
        return question.answer

    def give_up(self, call_id: int) -> None:
        """Fails a unary call whose time is over."""
        question = self._calls.pop(call_id, None)
        self._parts.forget(call_id)
        if question is not None:
            question.fail(unavailable(self._service))

    def open(
        self,
        method: str,
        request: Message,
        response_type: type[ResponseT],
        unpack: Callable[[bytes], ResponseT] | None = None,
    ) -> ClientCall[ResponseT]:
        """Starts a streaming call. The caller reads it to its end, or cancels it. `unpack` is set if some of its
        responses may come in a packed form."""
        call = ClientCall(self, response_type, unpack)
        call.call_id = self._begin(method, request, call)
        return call

    def _begin(self, method: str, request: Message, call: UnaryCall[Any] | ClientCall[Any]) -> int:
        if self._outbox is None:
            raise ExchangeBroken(self._service)
        self._last_call_id += 1
        self._calls[self._last_call_id] = call
        span = current_span()
        opening = Opening(method, "" if span is None else span.traceparent)
        self._outbox.put(self._last_call_id, pb.ITEM_KIND_OPEN, request.SerializeToString(), opening)
        return self._last_call_id

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
        self._parts.forget(call_id)
        if self._calls.pop(call_id, None) is None or self._outbox is None:
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
            self._tell_faults(outcomes)
            await asyncio.sleep(RECONNECT_AFTER_S[min(failures, len(RECONNECT_AFTER_S) - 1)])

    async def _read(self, stream: "grpc.aio.StreamStreamCall[Any, Any]", outbox: Outbox) -> None:
        await stream.wait_for_connection()
        self._outbox = outbox
        self._going_away = self._has_spoken = self._is_dismissed = False
        self._unheard_signs = 0
        self._connected.set()
        has_packed = self._has_packed
        # Read by the iterator: after a failed write, `stream.read()` returns nothing, even if messages have arrived.
        async for response in stream:
            self._unheard_signs = 0
            self._has_spoken = True
            if has_packed and (packed := response.packed):
                self._receive_packed(packed)
            for item in response.items:
                self._receive(item)
            if self._is_dismissed:
                return

    async def _write(self, stream: "grpc.aio.StreamStreamCall[Any, Any]", outbox: Outbox) -> None:
        while (message := await outbox.next_message()) is not None:
            await stream.write(message)
            await self._delay(self._load())

    async def _watch(self, outbox: Outbox) -> None:
        """Sends heartbeats; returns when the other side has been silent for too long."""
        await self._connected.wait()
        while self._unheard_signs < SILENT_SIGNS:
            self._unheard_signs += 1
            outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
            await asyncio.sleep(ALIVE_EVERY_S)
        self._log.warning("exchange.silent", name=self._service)

    def _tell_faults(self, outcomes: Iterable[BaseException | None]) -> None:
        """Logs unexpected exceptions; broken connections are normal."""
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, grpc.RpcError | asyncio.InvalidStateError):
                self._log.failure("exchange.failed", outcome, name=self._service)

    def _break_off(self) -> None:
        self._outbox = None
        self._connected.clear()
        calls, self._calls = self._calls, {}
        self._parts = PartialPayloads()
        for call in calls.values():
            call.fail(ExchangeBroken(self._service))

    def _receive_packed(self, packed: bytes) -> None:
        calls = self._calls
        for call_id, payload in read_packed(packed):
            if (call := calls.get(call_id)) is not None:
                call.arrive_packed(payload)

    def _receive(self, item: Item) -> None:
        kind = item.kind
        if kind == pb.ITEM_KIND_GOING_AWAY:
            self._going_away = True
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
        if kind == pb.ITEM_KIND_MESSAGE:
            call.arrive(self._parts.whole(item))
        elif kind == pb.ITEM_KIND_END:
            del self._calls[item.call_id]
            call.complete(self._parts.whole(item))
        elif kind == pb.ITEM_KIND_ERROR:
            del self._calls[item.call_id]
            call.fail(_told_error(self._parts.whole(item)))
        elif kind == pb.ITEM_KIND_PART:
            self._parts.add(item)


def _told_error(payload: bytes) -> LegatoError:
    try:
        return from_status(Status.FromString(payload))
    except DecodeError:
        return internal_error()
