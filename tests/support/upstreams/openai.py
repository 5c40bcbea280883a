"""A model server that does as it is told: OpenAI's chat completions on a real socket, for tests.

    async with Upstream() as upstream:
        upstream.replies.append(Reply(contents=["Hel", "lo"], cut_after=1))
        ... ask at upstream.base_url ...
        [request] = upstream.requests

Each request takes the next of `replies`, or `default_reply`. As a program of its own
(`python -m tests.support.upstreams.openai PORT`) it is told by `POST /replies` (a JSON array of replies) and asked by
`GET /requests`.
"""

import asyncio
import base64
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from aiohttp import web

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
# The body of a refusal that no shorter answer helps.
TOO_LONG = (
    '{"error":{"code":"context_length_exceeded","message":"This model\'s maximum context length is 10 tokens. However,'
    ' your messages resulted in 72 tokens."}}'
)


class Reply(msgspec.Struct, kw_only=True):
    """An answer to one request. Counts of events start with the first one, which carries the role."""

    status: int = 200
    # Sent as it is in place of a completion: an error's body, garbage, a completion in some dialect.
    body: str | None = None
    content_type: str | None = None
    headers: dict[str, str] = {}
    contents: list[str] = msgspec.field(default_factory=lambda: ["Hello", ",", " world", "!"])
    # What is said in place of an answer.
    refusals: list[str] = []
    # What is thought before the answer.
    reasoning: list[str] = []
    # The contents are sent this many times over.
    repeat: int = 1
    # What the contents cite.
    annotations: list[dict[str, Any]] = []
    # As deltas of a stream; `message_tool_calls` is the same for an answer in one piece.
    tool_calls: list[dict[str, Any]] = []
    message_tool_calls: list[dict[str, Any]] = []
    finish_reason: str | None = "stop"
    usage: dict[str, Any] | None = msgspec.field(default_factory=USAGE.copy)
    # The data of all events, in place of those that would be made from the fields above.
    events: list[str] | None = None
    # The bytes of each write to the socket (as Latin-1), in place of events altogether.
    writes: list[str] | None = None
    done: bool = True
    # Before the status line, before the first event, and before each further one.
    delay_s: float = 0
    first_event_delay_s: float = 0
    event_delay_s: float = 0
    # Between the last event and the end of the response.
    end_delay_s: float = 0
    # After this many events the connection is broken, or nothing more comes.
    cut_after: int | None = None
    stall_after: int | None = None
    # All events in one write, as a busy network would bring them.
    at_once: bool = False


@dataclass
class Recorded:
    """One request as it came, and what became of it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    received_at_s: float
    query: str = ""
    # The path with the query, as it was sent.
    target: str = ""
    aborted_at_s: float | None = None
    answered: bool = False
    # Of a stream: how many of its writes were begun.
    writes: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def aborted(self) -> bool:
        return self.aborted_at_s is not None

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Upstream:
    """Vendors with another wire inherit from it, with a path and a way to write answers of their own."""

    # As the routes file names it.
    kind = "openai"
    version = ""
    path = "/v1/chat/completions"
    other_paths: tuple[str, ...] = ()
    # The content type of streams.
    stream_type = "text/event-stream"

    def __init__(self, default_reply: Reply | None = None) -> None:
        self.default_reply = default_reply or Reply()
        self.replies: deque[Reply] = deque()
        self.requests: list[Recorded] = []
        # Requests whose last piece was not sent yet, and the most at the same time.
        self.running: set[int] = set()
        self.most_running = 0
        self._arrived = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        for path in (self.path, *self.other_paths):
            app.router.add_post(path, self._complete)
        app.router.add_post("/replies", self._take_replies)
        app.router.add_get("/requests", self._show_requests)
        # Cancelling the handler is how aiohttp says that the peer is gone.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def kill(self) -> None:
        """Ends like a killed process: all connections are cut off at once."""
        if self._runner is not None and self._runner.server is not None:
            for site in list(self._runner.sites):
                await site.stop()
            for connection in self._runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.stop()

    async def received(self, count: int = 1) -> Recorded:
        """Wait until so many requests have come; the last of them."""
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()
        return self.requests[count - 1]

    def reply_to(self, recorded: Recorded) -> Reply:
        return self.replies.popleft() if self.replies else self.default_reply

    async def before_write(self, recorded: Recorded) -> None:
        """A hook for subclasses before each write of a stream."""

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        """The vendor's answer to a request that breaks its rules."""
        return None

    def wants_stream(self, recorded: Recorded) -> bool:
        return bool(recorded.json.get("stream"))

    def write_stream(self, reply: Reply, recorded: Recorded) -> list[bytes]:
        return _events(reply)

    def write_whole(self, reply: Reply, recorded: Recorded) -> dict[str, Any]:
        return _whole(reply)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        recorded = Recorded(
            request.method,
            request.path,
            dict(request.headers),
            await request.read(),
            id(request.transport),
            time.monotonic(),
            request.rel_url.raw_query_string,
            request.raw_path,
        )
        reply = self.refusal_of(recorded) or self.reply_to(recorded)
        self.requests.append(recorded)
        self.running.add(id(recorded))
        self.most_running = max(self.most_running, len(self.running))
        self._arrived.set()
        try:
            await asyncio.sleep(reply.delay_s)
            if reply.body is not None or reply.status != 200:
                return web.Response(
                    status=reply.status,
                    body=(reply.body or "").encode("latin-1", "replace"),
                    content_type=reply.content_type or "application/json",
                    headers=reply.headers,
                )
            if reply.writes is None and not self.wants_stream(recorded):
                whole = msgspec.json.encode(self.write_whole(reply, recorded))
                return web.Response(body=whole, content_type="application/json", headers=reply.headers)
            return await self._stream(reply, request, recorded)
        except (asyncio.CancelledError, ConnectionResetError):
            recorded.aborted_at_s = time.monotonic()
            raise
        finally:
            self.running.discard(id(recorded))
            recorded.answered = not recorded.aborted
            recorded.ended.set()

    async def _stream(self, reply: Reply, request: web.Request, recorded: Recorded) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": reply.content_type or self.stream_type, **reply.headers})
        await response.prepare(request)
        await asyncio.sleep(reply.first_event_delay_s)
        writes = [write.encode("latin-1") for write in reply.writes or ()]
        if reply.writes is None:
            writes = self.write_stream(reply, recorded)
        if reply.at_once:
            writes = [b"".join(writes)]
        for number, write in enumerate(writes):
            if number == reply.cut_after:
                if request.transport is not None:
                    request.transport.abort()
                return response
            if number == reply.stall_after:
                await asyncio.Event().wait()
            if number:
                # At least a turn of the loop, so that a peer that left is noticed.
                await asyncio.sleep(reply.event_delay_s)
            await self.before_write(recorded)
            recorded.writes += 1
            if number == len(writes) - 1:
                self.running.discard(id(recorded))
            await response.write(write)
        await asyncio.sleep(reply.end_delay_s)
        await response.write_eof()
        return response

    async def _take_replies(self, request: web.Request) -> web.Response:
        self.replies.extend(msgspec.json.decode(await request.read(), type=list[Reply]))
        return web.Response(status=204)

    async def _show_requests(self, request: web.Request) -> web.Response:
        shown = [
            {
                "method": recorded.method,
                "path": recorded.path,
                "headers": recorded.headers,
                "body_base64": base64.b64encode(recorded.body).decode(),
                "received_at_s": recorded.received_at_s,
                "aborted_at_s": recorded.aborted_at_s,
                "answered": recorded.answered,
            }
            for recorded in self.requests
        ]
        return web.Response(body=msgspec.json.encode(shown), content_type="application/json")


def _events(reply: Reply) -> list[bytes]:
    datas = reply.events if reply.events is not None else [msgspec.json.encode(c).decode() for c in _chunks(reply)]
    if reply.done:
        datas = [*datas, "[DONE]"]
    return [b"data: " + data.encode() + b"\n\n" for data in datas]


def _chunks(reply: Reply) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": reasoning} for reasoning in reply.reasoning]
    deltas += [{"content": content} for content in reply.contents * reply.repeat]
    deltas += [{"annotations": reply.annotations}] if reply.annotations else []
    deltas += [{"refusal": refusal} for refusal in reply.refusals]
    calls = reply.tool_calls or [{"index": index, **call} for index, call in enumerate(reply.message_tool_calls)]
    deltas += [{"tool_calls": [call]} for call in calls]
    chunks = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    if reply.finish_reason is not None:
        chunks.append(_chunk([{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]))
    if reply.usage is not None:
        chunks.append({**_chunk([]), "usage": reply.usage})
    return chunks


def _chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-upstream",
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": "upstream-model",
        "choices": choices,
    }


def _whole(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(reply.contents * reply.repeat) or None}
    if reply.reasoning:
        message["reasoning_content"] = "".join(reply.reasoning)
    if reply.annotations:
        message["annotations"] = reply.annotations
    if reply.refusals:
        message["refusal"] = "".join(reply.refusals)
    if reply.message_tool_calls:
        message["tool_calls"] = reply.message_tool_calls
    completion = {
        **_chunk([{"index": 0, "message": message, "finish_reason": reply.finish_reason}]),
        "object": "chat.completion",
    }
    if reply.usage is not None:
        completion["usage"] = reply.usage
    return completion


async def main(port: int) -> None:
    upstream = Upstream()
    await upstream.start(port)
    print(upstream.base_url, flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
