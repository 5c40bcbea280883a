"""One HTTP connection, with limits on what its client may cost. Late or malformed requests are answered too."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import HttpScope
from services.chassis.http.body_pacer import SLICE_BYTES, BodyPacer
from services.chassis.http.connection_limit import ConnectionLimit
from services.chassis.http.half_closed import HalfClosed
from services.chassis.http.request_head import HeadProtocol
from services.chassis.http.response_writer import ResponseWriter
from services.chassis.http.unread_body import MOST_PASSED_OVER_BYTES, UNREAD_TIMEOUT_S, UnreadBody
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Deadline

HEADERS_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 75
# Most pipelined requests that may wait on a connection, of those that arrived in one read with the one before.
MOST_EARLY_REQUESTS = 32
# Few clients pipeline, and those have to expect that the connection is closed before their turn.
LARGEST_PIPELINED_BYTES = 64 * 1024
# Most bytes of chunk framing of a body, beyond the size of the body itself.
LARGEST_FRAMING_BYTES = 1024 * 1024
# The cost of a request that is refused before the application, in pieces of a body.
REFUSAL_PIECES = 50
# On shutdown, how long a connection stays open whose client has not received `Connection: close`.
LAST_REQUEST_WITHIN_S = 0.2

RenderRefusal = Callable[[LegatoError], Answer]
RefuseAtOnce = Callable[[HttpScope], Answer | None]


def refuse_none(scope: HttpScope) -> Answer | None:
    return None


class PausableFlowControl(FlowControl):
    """Keeps reading paused during a rest; the end of the rest resumes it, whatever paused it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_resting = False

    def rest(self) -> None:
        self._is_resting = True
        self.pause_reading()

    def end_rest(self) -> None:
        self._is_resting = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self._is_resting:
            super().resume_reading()


class ServerConnection(HeadProtocol):
    headers_timeout_s = HEADERS_TIMEOUT_S
    unread_timeout_s = UNREAD_TIMEOUT_S
    stalled_reader_s: float
    flow: PausableFlowControl
    refuse_at_once: RefuseAtOnce = staticmethod(refuse_none)
    # Renders the answer to a request that does not reach the application.
    render_refusal: RenderRefusal
    # Shared by all connections of a server.
    is_leaving = False
    is_ending = False
    passed_over: set[UnreadBody]
    owing: set[BodyPacer]
    all_connections: ConnectionLimit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = PausableFlowControl(transport)
        # Writers wait for whatever the kernel does not take at once, so that delivery is never ahead of what has left
        # this process by more than one piece.
        transport.set_write_buffer_limits(0)
        # The request that is being answered; `cycle` is the one being read.
        self._started: ResponseWriter | None = None
        # What a client has pipelined, which means sent before it has the last answer; and the size of all of that, kept
        # or not. Reading goes on while a request is answered, since otherwise a disconnect would not be noticed; but
        # nothing that is wrong with this concerns the answer, so it is parsed in its turn.
        self._pipelined = bytearray()
        self._pipelined_bytes = 0
        # Malformed data arrived after a valid request.
        self._has_invalid_data = False
        self._unread_body = UnreadBody(transport, self.passed_over)
        self._pace = BodyPacer(self.owing)
        # Counters of the current request: pieces since the last pause, and bytes with and without chunk framing.
        self._pieces = 0
        self._wire_bytes = 0
        self._body_bytes = 0
        # Bytes received and not parsed yet, while reading pauses.
        self._unparsed = b""
        self._rest: asyncio.TimerHandle | None = None
        self._half_closed = HalfClosed(transport, self.loop)
        # Of the headers, if they are awaited, of the next request, or of a body that is not read.
        self._deadline = Deadline(self.loop, self._on_deadline)
        # Of a client that does not read its answer, and how much of that was unsent when it began.
        self._stalled = Deadline(self.loop, self._on_stalled)
        self._unsent_bytes = 0
        self._awaits_headers = False
        if self.all_connections.add(transport):
            self._expect_headers()
            self.all_connections.wait(transport, self._make_room)
        else:
            self._refuse(unavailable("Capacity for another connection"))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.all_connections.remove(self.transport)
        self._deadline.close()
        self._unread_body.stop()
        self._pace.close()
        self._half_closed.stop()
        if self._rest is not None:
            self._rest.cancel()
        self._stalled.close()
        if self._started is not None:
            self._started.connection_lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._rest is not None:
            self._unparsed += data
            return
        if self._is_idle() and not self._unread_body.is_under_way:
            self._pace.begin()
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parses in slices, and pauses after an expensive one."""
        for begin in range(0, len(data), SLICE_BYTES):
            if self.transport.is_closing():
                return
            if self._rest is not None:
                self._unparsed += data[begin:]
                return
            if self._is_pipelined():
                self._keep_pipelined(data[begin:])
                return
            end = begin + SLICE_BYTES
            piece = data if len(data) <= SLICE_BYTES else data[begin:end]
            self._pieces = 0
            self._read(piece)
            owed_s = self._unread_body.discard(len(piece), self._pieces) if self._unread_body.is_under_way else 0.0
            rest_s = self._pace.charge(self._pieces, len(piece), owed_s) if self._pieces or owed_s else 0.0
            if rest_s:
                self._unparsed = data[end:]
                self.flow.rest()
                self._rest = self.loop.call_later(rest_s, self._parse_on)
                return

    def _parse_on(self) -> None:
        self._rest = None
        data, self._unparsed = self._unparsed, b""
        self._parse(data)
        if not self._is_resting() and not self.transport.is_closing():
            self.flow.end_rest()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Returns whether the connection stays open for a half-closed client that waits for its answer."""
        started = self._started
        if started is None or started.response_complete or (started is self.cycle and started.more_body):
            return False
        if self._half_closed.is_so:
            return True
        if not self._half_closed.begin(started):
            return False
        if self.pipeline and self.cycle.more_body:
            # Its body can never be completed.
            self.pipeline.popleft()
        if not self.pipeline and not self._pipelined_bytes:
            started.keep_alive = False
        return True

    def _is_resting(self) -> bool:
        return self._rest is not None

    def _is_pipelined(self) -> bool:
        """Returns whether data that arrives now belongs to a next request, though one is being answered."""
        started = self._started
        if started is None or started.response_complete:
            return False
        return self.cycle is not started or not started.more_body

    def _keep_pipelined(self, data: bytes) -> None:
        self._pipelined_bytes += len(data)
        if self._pipelined_bytes <= LARGEST_PIPELINED_BYTES:
            self._pipelined += data
        else:
            self._pipelined.clear()
            self._stop_reading()

    def _stop_reading(self) -> None:
        """Drops what is pipelined and closes after the current answer."""
        self.pipeline.clear()
        cast(ResponseWriter, self._started).keep_alive = False
        if self._pipelined_bytes > MOST_PASSED_OVER_BYTES:
            self.transport.close()

    def _read(self, data: bytes) -> None:
        try:
            self.feed(data)
        except httptools.HttpParserError:
            self._on_invalid_data()
            return
        self._wire_bytes += len(data)
        if self._wire_bytes - self._body_bytes > LARGEST_FRAMING_BYTES + self._body_bytes:
            self._mistake = Sentence("chunk_framing_long")
            self._on_invalid_data()
            return
        if self._headers_begun and not self._is_pipelined() and not self._awaits_headers:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            # The parser reads this head once more.
            return
        self._headers_begun = False
        if self.transport.is_closing():
            # This request arrived after the connection's last one.
            return
        scope = self._scope()
        self._wire_bytes = self._body_bytes = 0
        self._deadline.clear()
        self._awaits_headers = False
        self.all_connections.work(self.transport)
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self.cycle = cycle = ResponseWriter(self, scope, keep_alive=keep_alive)
        # Trailers are discarded: the headers have already been checked.
        self.headers = []
        if self._started is None or self._started.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.pipeline.appendleft((cycle, self.app))
            if len(self.pipeline) > MOST_EARLY_REQUESTS:
                self._stop_reading()
                # Raising stops the parser: there may be thousands more.
                raise ValueError("too many requests at once")

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        started: Any = cycle
        self._started = started
        if self.is_leaving:
            cycle.keep_alive = False
        if self._half_closed.is_so:
            self._half_closed.follow(started)
        refusal = self.refuse_at_once(started.scope) if started.keep_alive else None
        if refusal is None:
            super()._start_asgi_task(cycle, app)
            return
        self._pieces += REFUSAL_PIECES
        self.transport.write(refusal.rendered())
        cycle.response_started = cycle.response_complete = True
        self.on_response_complete()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        started: Any = self._started
        if started.more_body:
            self._unread_body.start()
            self._deadline.set(self.loop.time() + self.unread_timeout_s)
            self.all_connections.wait(self.transport, self._make_room)
        else:
            self._go_on()
        if self.is_ending:
            self._close_soon()

    def _go_on(self) -> None:
        """Continues with the next request, once the last one and its answer are complete."""
        self._half_closed.stop()
        started: Any = self._started
        if not started.keep_alive:
            self.transport.close()
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._has_invalid_data:
            self._refuse_invalid_data()
            return
        elif self._half_closed.is_so and not self._pipelined_bytes:
            self.transport.close()
            return
        else:
            self.all_connections.wait(self.transport, self._make_room)
            if self._headers_begun:
                self._expect_headers()
            else:
                self._deadline.set(self.loop.time() + KEEP_ALIVE_S)
        if self._pipelined_bytes and not self._is_pipelined():
            data, self._pipelined_bytes = bytes(self._pipelined), 0
            self._pipelined.clear()
            self._parse(data)

    def shutdown(self) -> None:
        """Ends the connection when it is idle. Called once, after the listeners closed."""
        self.is_ending = True
        if self._is_idle():
            self._close_soon()
        elif not self.cycle.response_started:
            self.cycle.keep_alive = False

    def _close_soon(self) -> None:
        """Closes after a short delay, so that a request which the client may be sending just now is still answered."""
        self.loop.call_later(LAST_REQUEST_WITHIN_S, self._close_if_idle)

    def _make_room(self) -> None:
        """Closes for another connection. A client that does not read its last answer would keep it open."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            self.transport.close()

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        self._pieces += 1
        self._body_bytes += len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT and cycle is self._started:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._headers_begun:
            # The parser reads this head once more.
            return
        cycle: Any = self.cycle
        cycle.more_body = False
        if not cycle.response_complete:
            cycle.message_event.set()
            cycle.provide_body()
        elif not self.transport.is_closing():
            self._unread_body.stop()
            self._deadline.clear()
            self._go_on()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._stalled.clear()
        super().resume_writing()

    def _expect_reading(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._stalled.set(self.loop.time() + self.stalled_reader_s)

    def _on_stalled(self) -> None:
        if self.transport.get_write_buffer_size() < self._unsent_bytes:
            # The client reads slowly.
            self._expect_reading()
        else:
            self.transport.abort()

    def _on_invalid_data(self) -> None:
        if not self._is_pipelined():
            self._refuse_invalid_data()
            return
        # The garbage is refused in its turn, and so is a request whose body it is part of.
        self._has_invalid_data = True
        if self.cycle is not self._started and self.cycle.more_body and self.pipeline:
            self.pipeline.popleft()

    def _refuse_invalid_data(self) -> None:
        """Refuses it without passing on the parser's message."""
        if not self._has_begun_to_answer():
            self._refuse(LegatoError(Reason.REQUEST_INVALID, self._mistake))
        self.transport.close()

    def _is_idle(self) -> bool:
        # None before the first request, although uvicorn's types do not say so.
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _has_begun_to_answer(self) -> bool:
        """Returns whether the request being read has an answer."""
        cycle: Any = self.cycle
        return cycle is not None and cycle.more_body and cycle.response_started

    def _expect_headers(self) -> None:
        self._awaits_headers = True
        self._deadline.set(self.loop.time() + self.headers_timeout_s)

    def _on_deadline(self) -> None:
        if self._awaits_headers:
            sentence = Sentence("headers_late", within_s=f"{self.headers_timeout_s:.0f}")
            self._refuse(LegatoError(Reason.BODY_TIMEOUT, sentence))
        self.transport.close()

    def _refuse(self, error: LegatoError) -> None:
        status, headers, body = self.render_refusal(error)
        self.transport.write(Answer(status, [*headers, (b"connection", b"close")], body).rendered())
