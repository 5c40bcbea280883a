"""What was asked by way of an exchange, and is not over yet."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from services.chassis.errors import LegatoError, internal_error
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from services.chassis.timing.deadlines import Deadlines

ResponseT = TypeVar("ResponseT", bound=Message)


class UnaryCall(Generic[ResponseT]):
    """Whoever asked may leave: the answer comes all the same, and nobody hears it."""

    __slots__ = ("_deadline", "_response_type", "answer")

    def __init__(self, response_type: type[ResponseT]) -> None:
        self.answer: asyncio.Future[ResponseT] = asyncio.get_running_loop().create_future()
        self._response_type = response_type

    def expect(self, deadlines: Deadlines, within_s: float, on_passed: Callable[[], None]) -> None:
        self._deadline = deadlines.new(on_passed)
        self._deadline.set(deadlines.now_s() + within_s)

    def arrive(self, payload: bytes) -> None:
        """A question has but one answer, and that is its end."""

    def complete(self, payload: bytes) -> None:
        self._deadline.clear()
        if self.answer.done():
            return
        try:
            self.answer.set_result(self._response_type.FromString(payload))
        except DecodeError:
            # Raised here it would end the exchange, and all other calls with it.
            self.answer.set_exception(internal_error())

    def fail(self, error: LegatoError) -> None:
        self._deadline.clear()
        if not self.answer.done():
            self.answer.set_exception(error)


class CallTransport(Protocol):
    """The exchange, as a call sees it that runs there."""

    def send(self, call_id: int, payload: bytes) -> None: ...

    def credit(self, call_id: int, credit_bytes: int) -> None: ...

    def forget(self, call_id: int) -> None: ...


class ClientCall(Generic[ResponseT]):
    """A conversation on an exchange, for one reader."""

    def __init__(self, exchange: CallTransport, response_type: type[ResponseT]) -> None:
        self.call_id = 0
        self._exchange = exchange
        self._response_type = response_type
        self._inbox: deque[bytes] = deque()
        self._ended = False
        self._error: LegatoError | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._taken_bytes = 0

    async def receive(self) -> ResponseT | None:
        """The next response, or None at the end; raises what the other side raised, after all it had sent."""
        while not self._inbox:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        payload = self._inbox.popleft()
        self._taken_bytes += len(payload) + MESSAGE_OVERHEAD_BYTES
        if self._taken_bytes >= WINDOW_BYTES // 4:
            self._exchange.credit(self.call_id, self._taken_bytes)
            self._taken_bytes = 0
        return self._response_type.FromString(payload)

    def send(self, request: Message) -> None:
        self._exchange.send(self.call_id, request.SerializeToString())

    def cancel(self) -> None:
        self._exchange.forget(self.call_id)

    def arrive(self, payload: bytes) -> None:
        self._inbox.append(payload)
        self._wake()

    def complete(self, payload: bytes) -> None:
        if payload:
            self._inbox.append(payload)
        self._ended = True
        self._wake()

    def fail(self, error: LegatoError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
