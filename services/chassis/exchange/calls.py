"""The calls of an exchange's client: what has arrived of each, and who waits for it."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, Protocol

from google.protobuf.message import DecodeError, Message

from services.chassis.errors import LegatoError, internal_error
from services.chassis.exchange.methods import ResponseT
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from services.chassis.timing.deadlines import Timeout

# How much is received before its credit is returned.
_CREDIT_BYTES: Final = WINDOW_BYTES // 4


class Consumer(Protocol):
    """Handles payloads of a call where they arrive, so that its reader sees the others only."""

    def take(self, payload: bytes) -> bool:
        """Handles a payload without waiting, and returns True; or declines it."""
        ...


class CallTransport(Protocol):
    """The interface of an exchange to its calls."""

    def send(self, call_id: int, payload: bytes) -> None: ...

    def credit(self, call_id: int, credit_bytes: int) -> None: ...

    def forget(self, call_id: int) -> None: ...

    def give_up(self, call_id: int) -> None: ...


class UnaryCall(Timeout, Generic[ResponseT]):
    """A call with one response. If the caller leaves, the response still arrives and is discarded."""

    __slots__ = ("_exchange", "_response_type", "answer", "call_id")

    def __init__(
        self, exchange: CallTransport, loop: asyncio.AbstractEventLoop, response_type: type[ResponseT]
    ) -> None:
        super().__init__(loop)
        self.call_id = 0
        self.answer: asyncio.Future[ResponseT] = loop.create_future()
        self._exchange = exchange
        self._response_type = response_type

    def on_passed(self) -> None:
        self._exchange.give_up(self.call_id)

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


class ClientCall(Generic[ResponseT]):
    """A streaming call on an exchange, for one reader."""

    def __init__(
        self,
        exchange: CallTransport,
        response_type: type[ResponseT],
        unpack: Callable[[bytes], ResponseT] | None = None,
        consumer: Consumer | None = None,
    ) -> None:
        """`unpack` parses a payload in its packed form, which begins with a zero byte. `consumer` is offered each
        payload before the reader gets it, and while the reader waits at once when it arrives: one that it takes wakes
        no task."""
        self.call_id = 0
        self._exchange = exchange
        self._response_type = response_type
        self._unpack = unpack
        self._take = _decline if consumer is None else consumer.take
        self._inbox: deque[bytes] = deque()
        self._ended = False
        self._error: LegatoError | None = None
        # Set only while the reader waits.
        self._arrived: asyncio.Future[None] | None = None
        self._taken_bytes = 0

    async def receive(self) -> ResponseT | None:
        """Returns the next response that the consumer declines, or None at the end; raises the other side's error,
        after all that it had sent."""
        while True:
            while self._inbox:
                payload = self._inbox.popleft()
                self._taken_bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
                if self._taken_bytes >= _CREDIT_BYTES:
                    self._give_credit()
                if not self._take(payload):
                    return self._parse(payload)
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            try:
                await self._arrived
            finally:
                self._arrived = None

    def send(self, request: Message) -> None:
        self._exchange.send(self.call_id, request.SerializeToString())

    def cancel(self) -> None:
        if not self._ended:
            self._exchange.forget(self.call_id)

    def complete(self, payload: bytes) -> None:
        self._ended = True
        if payload:
            self._inbox.append(payload)
        self._wake()

    def fail(self, error: LegatoError) -> None:
        self._error = error
        self._wake()

    def _keep(self, payload: bytes) -> None:
        """Leaves a payload to the reader."""
        self._inbox.append(payload)
        self._wake()

    def _give_credit(self) -> None:
        self._exchange.credit(self.call_id, self._taken_bytes)
        self._taken_bytes = 0

    def _parse(self, payload: bytes) -> ResponseT:
        if self._unpack is not None and payload.startswith(b"\0"):
            return self._unpack(payload)
        return self._response_type.FromString(payload)

    def _wake(self) -> None:
        arrived, self._arrived = self._arrived, None
        if arrived is not None and not arrived.done():
            arrived.set_result(None)


def _decline(payload: bytes) -> bool:
    return False


def arrive(calls: Mapping[int, UnaryCall[Any] | ClientCall[Any]], payloads: Iterable[tuple[int, bytes]]) -> None:
    """Offers each payload to the consumer of its call, or leaves it to the reader.

    It does so for all calls in one loop, without a method of theirs: a payload is some characters of an answer, and a
    function call more for each of them costs as much as anything else that is done here."""
    for call_id, payload in payloads:
        call = calls.get(call_id)
        if not isinstance(call, ClientCall):
            # It has ended. A unary call's only response comes with its end.
            continue
        try:
            is_taken = call._arrived is not None and call._take(payload)
        except Exception:
            # Raised here it would end the exchange, and all other calls with it. The reader tries again, and gets it.
            is_taken = False
        if not is_taken:
            call._keep(payload)
            continue
        call._taken_bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
        if call._taken_bytes >= _CREDIT_BYTES:
            call._give_credit()
