"""The answering side of an exchange."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from functools import partial
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message

from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error, to_status
from services.chassis.exchange.methods import Methods, StreamMethod, UnaryMethod
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES, Outbox
from services.chassis.exchange.rests import Rest, rest_among
from services.chassis.exchange.spans import CallSpans, end_with, traced
from services.chassis.identity import may_call, not_allowed
from services.chassis.log import Log
from services.chassis.metrics import BATCH_BOUNDS, Histogram
from services.chassis.tracing import Span, Tracer


def _refuse(request: Empty) -> Awaitable[Empty]:
    raise not_allowed()


_REFUSED = UnaryMethod(Empty, _refuse)

# How soon a client should have heard that it is to go elsewhere, and later that this was all; one that does not show it
# is not waited for.
HEARD_WITHIN_S = 1.0
POLL_S = 0.02


class ExchangeServer:
    def __init__(
        self,
        service: str,
        methods: Methods,
        response_type: type[Any],
        log: Log,
        tracer: Tracer | None = None,
        rest: Rest = rest_among,
    ) -> None:
        """`service` is its full name, of which the methods are RPCs too."""
        self._service = service
        self._methods = methods
        self._response_type = response_type
        self._log = log
        self._tracer = tracer
        self._rest = rest
        self._sessions: set[_Session] = set()
        # How many items each message has, for whoever looks.
        self.message_items = Histogram(BATCH_BOUNDS)
        self._draining = False

    async def serve(self, requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any, None]:
        spans = None if self._tracer is None else CallSpans(self._tracer, self._service)
        session = _Session(
            self._methods_for(context), Outbox(self._response_type, self.message_items), self._log, spans
        )
        self._sessions.add(session)
        if self._draining:
            session.go_away()
        reader = asyncio.create_task(session.read(requests))
        try:
            while (message := await session.outbox.take()) is not None:
                yield message
                await self._rest(len(session.calls))
            yield self._response_type(items=[Item(kind=pb.ITEM_KIND_FAREWELL)])
            await asyncio.wait((reader,), timeout=HEARD_WITHIN_S)
        finally:
            reader.cancel()
            self._sessions.discard(session)
            session.close()

    def _methods_for(self, context: Any) -> Methods:
        """What is not the caller's to ask for is refused by a method of its own, so that nothing is looked up for each
        item."""
        return {
            name: method if may_call(context, f"/{self._service}/{name}") else _REFUSED
            for name, method in self._methods.items()
        }

    async def drain(self, delay_s: float = 0.0) -> None:
        """Ask every client to open no further calls here, then wait until all have heard it, the delay is over and no
        call runs. A client that has nowhere else to go may still open some."""
        self._draining = True
        for session in self._sessions:
            session.go_away()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARD_WITHIN_S):
                while not all(session.has_heard for session in self._sessions):
                    await asyncio.sleep(POLL_S)
        await asyncio.sleep(delay_s)
        while any(session.calls for session in self._sessions):
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        """Let the clients go, who stay by themselves for as long as they can, and wait until they have heard all that
        was said to them. Those who come back are not waited for: they would do so again."""
        parting = set(self._sessions)
        for session in parting:
            session.outbox.close()
        while parting & self._sessions:
            await asyncio.sleep(POLL_S)


class _Session:
    """One client's exchange."""

    def __init__(self, methods: Methods, outbox: Outbox, log: Log, spans: CallSpans | None = None) -> None:
        self.outbox = outbox
        self._spans = spans
        self.calls: dict[int, _ServerCall | asyncio.Future[Any]] = {}
        # That it should open no further calls.
        self.has_heard = False
        self._methods = methods
        self._log = log

    async def read(self, requests: AsyncIterator[Any]) -> None:
        """Never waits on a call, so that whatever controls one gets through."""
        try:
            async for request in requests:
                for item in request.items:
                    self._take(item)
        finally:
            self.outbox.close()

    def go_away(self) -> None:
        self.outbox.put_control(Item(kind=pb.ITEM_KIND_GOING_AWAY))

    def close(self) -> None:
        for call in list(self.calls.values()):
            if isinstance(call, _ServerCall):
                call.leave()
        self.calls.clear()

    def _take(self, item: Item) -> None:
        kind = item.kind
        if kind == pb.ITEM_KIND_OPEN:
            self._open(item)
            return
        if kind == pb.ITEM_KIND_ALIVE:
            self.outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
            return
        if kind == pb.ITEM_KIND_GOING_AWAY:
            self.has_heard = True
            return
        call = self.calls.get(item.call_id)
        if not isinstance(call, _ServerCall):
            # The call is over, and the caller does not know it yet.
            return
        if kind == pb.ITEM_KIND_MESSAGE:
            call.arrive(item.payload)
        elif kind == pb.ITEM_KIND_CREDIT:
            call.add_credit(item.credit_bytes)
        elif kind == pb.ITEM_KIND_CANCEL:
            del self.calls[item.call_id]
            self.outbox.drop(item.call_id)
            call.leave()

    def _open(self, item: Item) -> None:
        call_id = item.call_id
        method = self._methods.get(item.method)
        if method is None or call_id in self.calls:
            self._fail(call_id, LegatoError(Reason.REQUEST_INVALID, "There is no such method."))
        elif isinstance(method, StreamMethod):
            call = _ServerCall(call_id, method.request_type, self.outbox)
            call.arrive(item.payload)
            self.calls[call_id] = call
            call.task = asyncio.create_task(self._converse(method, call, self._span_of(item)))
        else:
            try:
                answer = asyncio.ensure_future(method.answer(method.request_type.FromString(item.payload)))
            except Exception as error:
                self._fail(call_id, self._tellable(error))
                return
            self.calls[call_id] = answer
            if (span := self._span_of(item)) is not None:
                answer.add_done_callback(partial(end_with, span))
            answer.add_done_callback(lambda future: self._answered(call_id, future))

    def _answered(self, call_id: int, answer: "asyncio.Future[Message]") -> None:
        if self.calls.pop(call_id, None) is not answer:
            return
        if answer.cancelled():
            self._fail(call_id, internal_error())
        elif (error := answer.exception()) is not None:
            self._fail(call_id, self._tellable(error))
            forget_origin(error)
        else:
            self.outbox.put(call_id, pb.ITEM_KIND_END, answer.result().SerializeToString())

    async def _converse(self, method: StreamMethod[Any, Any], call: "_ServerCall", span: Span | None) -> None:
        try:
            await (method.serve(call) if span is None else traced(span, method.serve(call)))
        except asyncio.CancelledError:
            # The caller left, or the exchange broke: there is nobody to tell.
            return
        except Exception as error:
            if self.calls.pop(call.call_id, None) is call:
                self._fail(call.call_id, self._tellable(error))
            forget_origin(error)
            return
        if self.calls.pop(call.call_id, None) is call:
            self.outbox.put_end(call.call_id)

    def _span_of(self, item: Item) -> Span | None:
        return None if self._spans is None or not item.traceparent else self._spans.begin(item.method, item.traceparent)

    def _tellable(self, error: BaseException) -> LegatoError:
        if isinstance(error, LegatoError):
            return error
        if isinstance(error, DecodeError):
            return LegatoError(Reason.REQUEST_INVALID, "The message could not be read.")
        self._log.failure("exchange.failed", error)
        return internal_error()

    def _fail(self, call_id: int, error: LegatoError) -> None:
        self.outbox.put(call_id, pb.ITEM_KIND_ERROR, to_status(error).SerializeToString())


class _ServerCall:
    def __init__(self, call_id: int, request_type: type[Message], outbox: Outbox) -> None:
        self.call_id = call_id
        self.task: asyncio.Task[None] | None = None
        self._request_type = request_type
        self._outbox = outbox
        self._inbox: deque[bytes] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._credit_bytes = WINDOW_BYTES
        self._credited: asyncio.Future[None] | None = None

    async def receive(self) -> Any:
        while not self._inbox:
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self._request_type.FromString(self._inbox.popleft())

    async def send(self, response: Message) -> None:
        while self._credit_bytes <= 0:
            self._credited = asyncio.get_running_loop().create_future()
            await self._credited
        payload = response.SerializeToString()
        self._credit_bytes -= len(payload) + MESSAGE_OVERHEAD_BYTES
        self._outbox.put(self.call_id, pb.ITEM_KIND_MESSAGE, payload)

    def arrive(self, payload: bytes) -> None:
        self._inbox.append(payload)
        _wake(self._arrived)

    def add_credit(self, credit_bytes: int) -> None:
        self._credit_bytes += credit_bytes
        _wake(self._credited)

    def leave(self) -> None:
        if self.task is not None:
            self.task.cancel()


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
