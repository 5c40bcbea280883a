"""The server side of an exchange."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, Generic

from google.protobuf.message import DecodeError, Message

from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error, to_status
from services.chassis.exchange.client import ALIVE_EVERY_S, LOST_SIGNS
from services.chassis.exchange.methods import CallSpans, Methods, StreamMethod, end_with, traced
from services.chassis.exchange.outbox import (
    MESSAGE_OVERHEAD_BYTES,
    WINDOW_BYTES,
    ExchangeMessage,
    MessageT_co,
    Outbox,
    PartialPayloads,
    delay_send,
)
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import Span, Tracer


class Session:
    """The state of one client's exchange."""

    def __init__(
        self, methods: Methods, outbox: Outbox[ExchangeMessage], log: Log, spans: CallSpans | None = None
    ) -> None:
        self.outbox = outbox
        self._spans = spans
        self.calls: dict[int, _ServerCall | asyncio.Future[Message]] = {}
        # Whether the client has acknowledged the shutdown.
        self.has_heard = False
        self._methods = methods
        self._parts = PartialPayloads()
        self._log = log
        # None until the first heartbeat: a client need not send any.
        self._unheard_signs: int | None = None

    async def read(self, requests: AsyncIterator[ExchangeMessage]) -> None:
        """Receives items. It never waits on a call, so that control items get through."""
        try:
            async for request in requests:
                if self._unheard_signs is not None:
                    self._unheard_signs = 0
                for item in request.items:
                    self._receive(item)
        finally:
            self.outbox.close()

    async def watch(self) -> None:
        """Detects a client that vanished, by its silence, and cancels its calls: their answers would not be read."""
        while self._unheard_signs is None or self._unheard_signs < LOST_SIGNS:
            await asyncio.sleep(ALIVE_EVERY_S)
            if self._unheard_signs is not None:
                self._unheard_signs += 1
        self._log.warning("exchange.lost")
        self.close()
        self.outbox.close()

    def go_away(self) -> None:
        self.outbox.put_control(Item(kind=pb.ITEM_KIND_GOING_AWAY))

    def close(self) -> None:
        for call in list(self.calls.values()):
            if isinstance(call, _ServerCall):
                call.cancel()
        self.calls.clear()

    def _receive(self, item: Item) -> None:
        kind = item.kind
        if kind == pb.ITEM_KIND_OPEN:
            self._open(item)
            return
        if kind == pb.ITEM_KIND_ALIVE:
            self._unheard_signs = 0
            self.outbox.put_control(Item(kind=pb.ITEM_KIND_ALIVE))
            return
        if kind == pb.ITEM_KIND_GOING_AWAY:
            self.has_heard = True
            return
        if kind == pb.ITEM_KIND_PART:
            # It may be part of an opening: then there is no call yet.
            self._parts.add(item)
            return
        if kind == pb.ITEM_KIND_CANCEL:
            self._parts.pop(item.call_id, None)
        call = self.calls.get(item.call_id)
        if not isinstance(call, _ServerCall):
            # The call is over, which the caller does not know yet.
            self._parts.pop(item.call_id, None)
            return
        if kind == pb.ITEM_KIND_MESSAGE:
            call.arrive(self._parts.whole(item))
        elif kind == pb.ITEM_KIND_CREDIT:
            call.add_credit(item.credit_bytes)
        elif kind == pb.ITEM_KIND_CANCEL:
            del self.calls[item.call_id]
            self.outbox.drop(item.call_id)
            call.cancel()

    def _open(self, item: Item) -> None:
        call_id, payload = item.call_id, self._parts.whole(item) if self._parts else item.payload
        method = self._methods.get(item.method)
        if method is None or call_id in self.calls:
            self._fail(call_id, LegatoError(Reason.REQUEST_INVALID, Sentence("method_unknown")))
        elif isinstance(method, StreamMethod):
            call = _ServerCall(call_id, method.request_type, self.outbox)
            call.arrive(payload)
            self.calls[call_id] = call
            call.task = asyncio.create_task(self._converse(method, call, self._span_of(item)))
        else:
            try:
                answer = method.answer(method.request_type.FromString(payload))
                if not isinstance(answer, asyncio.Future):
                    answer = asyncio.ensure_future(answer)
            except Exception as error:
                self._fail(call_id, self._as_refusal(error))
                return
            self.calls[call_id] = answer
            if self._spans is not None and (span := self._span_of(item)) is not None:
                answer.add_done_callback(partial(end_with, span))
            answer.add_done_callback(partial(self._answered, call_id))

    def _answered(self, call_id: int, answer: "asyncio.Future[Message]") -> None:
        if self.calls.pop(call_id, None) is not answer:
            return
        if answer.cancelled():
            self._fail(call_id, internal_error())
        elif (error := answer.exception()) is not None:
            self._fail(call_id, self._as_refusal(error))
            forget_origin(error)
        else:
            self.outbox.put(call_id, pb.ITEM_KIND_END, answer.result().SerializeToString())

    async def _converse(self, method: StreamMethod[Any, Any], call: "_ServerCall", span: Span | None) -> None:
        try:
            await (method.serve(call) if span is None else traced(span, method.serve(call)))
        except asyncio.CancelledError:
            # The caller left, or the exchange broke: there is no caller left to answer.
            return
        except Exception as error:
            if self.calls.pop(call.call_id, None) is call:
                self._fail(call.call_id, self._as_refusal(error))
            forget_origin(error)
            return
        if self.calls.pop(call.call_id, None) is call:
            self.outbox.put_end(call.call_id)

    def _span_of(self, item: Item) -> Span | None:
        return None if self._spans is None or not item.traceparent else self._spans.begin(item.method, item.traceparent)

    def _as_refusal(self, error: BaseException) -> LegatoError:
        if isinstance(error, LegatoError):
            return error
        if isinstance(error, DecodeError):
            return LegatoError(Reason.REQUEST_INVALID, Sentence("call_unreadable"))
        self._log.failure("exchange.failed", error)
        return internal_error()

    def _fail(self, call_id: int, error: LegatoError) -> None:
        self.outbox.put(call_id, pb.ITEM_KIND_ERROR, to_status(error).SerializeToString())


class _ServerCall:
    def __init__(self, call_id: int, request_type: type[Message], outbox: Outbox[ExchangeMessage]) -> None:
        self.call_id = call_id
        self.task: asyncio.Task[None] | None = None
        self._request_type = request_type
        self._outbox = outbox
        self._inbox: deque[bytes] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._credit_bytes = WINDOW_BYTES
        # Whether there is credit left.
        self.has_room = True
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
        self._put(response, may_wait=False)

    def send_soon(self, response: Message) -> None:
        self._put(response, may_wait=True)

    def send_packed(self, payload: bytes) -> None:
        self._credit_bytes = credit_bytes = self._credit_bytes - len(payload) - MESSAGE_OVERHEAD_BYTES
        self.has_room = credit_bytes > 0
        self._outbox.put_packed(self.call_id, payload)

    def _put(self, response: Message, *, may_wait: bool) -> None:
        payload = response.SerializeToString()
        self._credit_bytes -= len(payload) + MESSAGE_OVERHEAD_BYTES
        self.has_room = self._credit_bytes > 0
        self._outbox.put(self.call_id, pb.ITEM_KIND_MESSAGE, payload, may_wait=may_wait)

    def arrive(self, payload: bytes) -> None:
        self._inbox.append(payload)
        _wake(self._arrived)

    def add_credit(self, credit_bytes: int) -> None:
        self._credit_bytes += credit_bytes
        self.has_room = self._credit_bytes > 0
        _wake(self._credited)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


# Timeout for a client to acknowledge the shutdown, and later the last message.
HEARD_WITHIN_S = 1.0
POLL_S = 0.02


class ExchangeServer(Generic[MessageT_co]):
    def __init__(
        self,
        service: str,
        methods: Methods,
        response_type: Callable[..., MessageT_co],
        log: Log,
        tracer: Tracer | None = None,
    ) -> None:
        """Serves `methods` of `service`, a full name, of which they are RPCs too."""
        self._service = service
        self._methods = methods
        self._response_type = response_type
        self._log = log
        self._tracer = tracer
        self._sessions: set[Session] = set()
        # Items per message, for metrics.
        self.message_items = Histogram(BATCH_BOUNDS)
        self._draining = False

    async def serve(self, requests: AsyncIterator[ExchangeMessage]) -> AsyncGenerator[MessageT_co, None]:
        spans = None if self._tracer is None else CallSpans(self._tracer, self._service)
        outbox = Outbox(self._response_type, self.message_items)
        session = Session(self._methods, outbox, self._log, spans)
        self._sessions.add(session)
        if self._draining:
            session.go_away()
        reader = asyncio.create_task(session.read(requests))
        watch = asyncio.create_task(session.watch())
        try:
            while (message := await outbox.next_message()) is not None:
                yield message
                # With many calls in flight even what may not wait is worth gathering: first pieces and ends of others.
                await delay_send(len(session.calls))
            yield self._response_type(items=[Item(kind=pb.ITEM_KIND_FAREWELL)])
            await asyncio.wait((reader,), timeout=HEARD_WITHIN_S)
        finally:
            reader.cancel()
            watch.cancel()
            self._sessions.discard(session)
            session.close()

    async def drain(self, delay_s: float = 0.0) -> None:
        """Asks every client to open no further calls here, then waits until all have acknowledged, the delay is over
        and no call runs. A client without another replica may still open some."""
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
        """Ends all sessions and waits until the clients have read everything. Clients that reconnect are not waited
        for: they would do so again."""
        parting = set(self._sessions)
        for session in parting:
            session.outbox.close()
        while parting & self._sessions:
            await asyncio.sleep(POLL_S)
