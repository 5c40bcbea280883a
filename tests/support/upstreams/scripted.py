"""A provider that answers byte by byte, as a script says: it may stop, break off or go silent anywhere.

    provider = ScriptedUpstream(Spoken(text=("It", " rains", ".")))
    provider.scripts.append([provider.answer.until("role"), SILENCE])

Each request takes the next of `scripts`, or gets the whole `answer`.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from tests.support.fault_proxy import reset
from tests.support.servers.byte_server import read_request
from tests.support.upstreams.openai import Recorded, Upstream


class Act(Enum):
    """What a script does beside writing bytes."""

    # Sends nothing until the other side leaves.
    SILENCE = "silence"
    # Resets the connection.
    CUT = "cut"
    # Ends it in order.
    CLOSE = "close"


@dataclass(frozen=True)
class Drip:
    """Repeats these bytes for as long as the other side stays."""

    sent: bytes
    every_s: float


@dataclass(frozen=True)
class Pause:
    """Sends nothing for a while."""

    pause_s: float


SILENCE, CUT, CLOSE = Act.SILENCE, Act.CUT, Act.CLOSE
Step = bytes | Act | Drip | Pause
Script = Sequence[Step]

STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END: Final = b"0\r\n\r\n"
STAGES: Final = ("head", "role", "first", "rest", "finish", "usage", "done", "end")


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def event(data: Any) -> bytes:
    said = data if isinstance(data, bytes) else msgspec.json.encode(data)
    return chunk(b"data: " + said + b"\n\n")


def response(status: int, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status} Status", f"Content-Type: {content_type}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True)
class Spoken:
    """An answer, by the stages of its stream: `text` in pieces, or a `call` of a tool in two."""

    text: Sequence[str] = ()
    # The name of the function, and its arguments in two pieces.
    call: tuple[str, str, str] | None = None
    prompt_tokens: int = 11
    completion_tokens: int = 7

    @property
    def stages(self) -> dict[str, bytes]:
        first, *rest = self._deltas()
        return {
            "head": STREAM_HEAD,
            "role": _chunk({"role": "assistant", "content": ""}),
            "first": _chunk(first),
            "rest": b"".join(map(_chunk, rest)),
            "finish": _chunk({}, "stop" if self.call is None else "tool_calls"),
            "usage": event({"choices": [], "usage": self._usage()}),
            "done": event(b"[DONE]"),
            "end": END,
        }

    def until(self, stage: str) -> bytes:
        """Returns all up to this stage, which is included."""
        stages = self.stages
        return b"".join(stages[each] for each in STAGES[: STAGES.index(stage) + 1])

    def within(self, stage: str) -> bytes:
        """Returns all up to the middle of this stage."""
        stages = self.stages
        before = b"".join(stages[each] for each in STAGES[: STAGES.index(stage)])
        return before + stages[stage][: len(stages[stage]) // 2]

    def whole(self) -> bytes:
        """Returns the body of an answer that is not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text) or None}
        if self.call is not None:
            name, *arguments = self.call
            function = {"name": name, "arguments": "".join(arguments)}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        reason = "stop" if self.call is None else "tool_calls"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return msgspec.json.encode({"object": "chat.completion", "choices": [choice], "usage": self._usage()})

    def _deltas(self) -> list[dict[str, Any]]:
        if self.call is None:
            return [{"content": piece} for piece in self.text]
        name, begun, ended = self.call
        first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": begun}}
        return [{"tool_calls": [first]}, {"tool_calls": [{"index": 0, "function": {"arguments": ended}}]}]

    def _usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


class ScriptedUpstream(Upstream):
    def __init__(self, answer: Spoken, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.scripts: deque[Script] = deque()
        # How many of its connections are silent, pause or drip.
        self.waiting = 0
        # Waits in pauses and between drips; a test may have another time.
        self.sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
        self._tls = tls
        self._visits: set[asyncio.Task[None]] = set()

    def is_waiting(self) -> bool:
        """Tells another thread if a connection is silent, pauses or drips, and the other side has not left it."""
        if not self.waiting:
            return False
        return asyncio.run_coroutine_threadsafe(self._count_waiting(), self._loop).result() > 0

    async def _count_waiting(self) -> int:
        # Turns of the loop, in which it notices that a connection was closed, and its task ends.
        for _ in range(5):
            await asyncio.sleep(0)
        return self.waiting

    async def start(self, port: int = 0) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._visit, "127.0.0.1", port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.create_task(self._serve(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, _, body = (await read_request(reader)).partition(b"\r\n\r\n")
                method, path, _ = head.decode("latin-1").split(" ", 2)
                self.requests.append(Recorded(method, path, {}, body, id(writer), time.monotonic()))
                script = self.scripts.popleft() if self.scripts else [self.answer.until("end")]
                for step in script:
                    if step is CUT:
                        reset(writer)
                    if isinstance(step, Act | Drip):
                        await self._wait(step, reader, writer)
                        return
                    if isinstance(step, Pause):
                        await self._pause(step)
                        continue
                    writer.write(step)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _wait(self, step: Act | Drip, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if step is CUT or step is CLOSE:
            return
        self.waiting += 1
        dripping = asyncio.create_task(self._drip(step, writer)) if isinstance(step, Drip) else None
        try:
            while await reader.read(4096):
                pass
        finally:
            self.waiting -= 1
            if dripping is not None:
                dripping.cancel()

    async def _pause(self, pause: Pause) -> None:
        self.waiting += 1
        try:
            await self.sleep(pause.pause_s)
        finally:
            self.waiting -= 1

    async def _drip(self, drip: Drip, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(drip.sent)
            await self.sleep(drip.every_s)
