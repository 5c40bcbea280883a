"""The server side of an exchange."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any

from google.protobuf.empty_pb2 import Empty

from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.exchange.methods import Methods, UnaryMethod
from services.chassis.exchange.outbox import Outbox
from services.chassis.exchange.session import Session
from services.chassis.exchange.spans import CallSpans
from services.chassis.rpc.allowed_methods import may_call, not_allowed
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from services.chassis.telemetry.tracing import Tracer


def _refuse(request: Empty) -> Awaitable[Empty]:
    raise not_allowed()


_REFUSED = UnaryMethod(Empty, _refuse)

# Timeout for a client to acknowledge the shutdown, and later the last message.
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

    async def serve(self, requests: AsyncIterator[Any], context: Any) -> AsyncGenerator[Any, None]:
        spans = None if self._tracer is None else CallSpans(self._tracer, self._service)
        session = Session(self._methods_for(context), Outbox(self._response_type, self.message_items), self._log, spans)
        self._sessions.add(session)
        if self._draining:
            session.go_away()
        reader = asyncio.create_task(session.read(requests))
        watch = asyncio.create_task(session.watch())
        try:
            while (message := await session.outbox.next_message()) is not None:
                yield message
            yield self._response_type(items=[Item(kind=pb.ITEM_KIND_FAREWELL)])
            await asyncio.wait((reader,), timeout=HEARD_WITHIN_S)
        finally:
            reader.cancel()
            watch.cancel()
            self._sessions.discard(session)
            session.close()

    def _methods_for(self, context: Any) -> Methods:
        """Replaces methods that the caller may not call by one that refuses, so that items need no permission check."""
        return {
            name: method if may_call(context, f"/{self._service}/{name}") else _REFUSED
            for name, method in self._methods.items()
        }

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
