"""A model server that goes on with the answer it is given the beginning of, and breaks off where it is told.

Its answer is the same whichever call asks for it: a call whose last message is the assistant's gets the rest.
"""

import asyncio
import socket
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from tests.support.upstreams.openai import Recorded, Reply, Upstream

# How an answer breaks off: the connection, the end of the response in the middle of an event, silence, or an event.
Way = Literal["closed", "reset", "ended", "stalled", "error", "malformed", "failed"]
WAYS: Final[tuple[Way, ...]] = ("closed", "reset", "ended", "stalled", "error", "malformed", "failed")

_CHUNK: Final = b'{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}'
_LAST_EVENTS: Final = {
    "error": b'data: {"error":{"message":"The server had an error","code":500}}\n\ndata: [DONE]\n\n',
    "malformed": b'data: {"choices":[{"index":0,"delta":{"content":"lo\n\n',
    "failed": b"data: " + _CHUNK % (b'{"content":"no"}', b'"error"') + b"\n\ndata: [DONE]\n\n",
}
# For what was written to be read before the connection is reset.
BEFORE_RESET_S: Final = 0.02


@dataclass(frozen=True)
class Cut:
    """The place and the way of a break: after this share of the bytes of the texts, which may be within an event."""

    way: Way
    share: float


@dataclass
class Script:
    """What a chat is answered."""

    # The texts of the events, which are escaped in JSON if they are not ASCII, or not.
    texts: list[str]
    escapes: bool = False
    finish_reason: str = "stop"
    # Of the calls, in their order; None or nothing for one that is not cut.
    cuts: deque[Cut | None] = field(default_factory=deque)
    # Whether the beginning is repeated before the rest, as by Mistral.
    repeats: bool = False
    # The messages and limits of the calls that got an answer.
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def usage(self) -> tuple[int, int]:
        """The tokens of the prompt and the answer that it reports of each call, which are nobody else's count."""
        return 7, len(self.texts) + 11


def prefix_of(call: dict[str, Any]) -> str:
    """The beginning of the answer that a call was given."""
    last = call["messages"][-1]
    return str(last["content"]) if last["role"] == "assistant" else ""


class ContinuingUpstream(Upstream):
    def __init__(self, script: Script | None = None) -> None:
        super().__init__()
        self.script = script

    def script_of(self, recorded: Recorded) -> Script | None:
        """The script of the chat; None if it is answered like any other."""
        return self.script

    async def _stream(self, reply: Reply, request: web.Request, recorded: Recorded) -> web.StreamResponse:
        script = self.script_of(recorded)
        if script is None:
            return await super()._stream(reply, request, recorded)
        call = recorded.json
        script.calls.append(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events = _events_after("" if script.repeats else prefix_of(call), script)
        cut = script.cuts.popleft() if script.cuts else None
        if cut is None:
            await _write(response, events)
            usage = dict(zip(("prompt_tokens", "completion_tokens"), script.usage, strict=True))
            await response.write(
                b"data: " + _CHUNK % (b"{}", msgspec.json.encode(script.finish_reason)) + b"\n\n"
                b'data: {"choices":[],"usage":' + msgspec.json.encode(usage) + b"}\n\ndata: [DONE]\n\n"
            )
            await response.write_eof()
            return response
        await _break_off(cut, events, request, response)
        return response


def _events_after(prefix: str, script: Script) -> list[bytes]:
    """The events of the texts after a beginning, which may end within one of them."""
    assert script.text.startswith(prefix), "the beginning is not that of the answer"
    left, events = len(prefix), []
    for text in script.texts:
        rest = text[left:]
        left = max(0, left - len(text))
        if rest:
            content = msgspec.json.encode(rest)
            if script.escapes:
                content = _escaped(rest)
            events.append(b"data: " + _CHUNK % (b'{"content":' + content + b"}", b"null") + b"\n\n")
    return events


def _escaped(text: str) -> bytes:
    units = text.encode("utf-16-be")
    return b'"' + b"".join(b"\\u" + units[at : at + 2].hex().encode() for at in range(0, len(units), 2)) + b'"'


async def _write(response: web.StreamResponse, events: list[bytes]) -> None:
    for event in events:
        await response.write(event)
        await asyncio.sleep(0)


async def _break_off(cut: Cut, events: list[bytes], request: web.Request, response: web.StreamResponse) -> None:
    """Writes at least the first event, so that the answer has begun."""
    if cut.way in _LAST_EVENTS:
        await _write(response, events[: 1 + int(cut.share * (len(events) - 1))])
        await response.write(_LAST_EVENTS[cut.way])
        await response.write_eof()
        return
    left = b"".join(events[1:])
    await _write(response, [*events[:1], left[: int(cut.share * len(left))]])
    transport = request.transport
    if cut.way == "stalled":
        await asyncio.Event().wait()
    elif cut.way == "ended":
        await response.write_eof()
    elif cut.way == "closed" and transport is not None:
        transport.close()
    elif transport is not None:
        await asyncio.sleep(BEFORE_RESET_S)
        linger = struct.pack("ii", 1, 0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()
