"""Pads the events of a stream: each piece of an answer is rendered by itself, and filled up to one of few sizes."""

from collections.abc import Callable, Iterator

import msgspec

from edge.wire.padding import filler
from legato_protos.router.v1.router_pb2 import ChatResponse

# Renders pieces as events.
Render = Callable[[ChatResponse], bytes]
_encode = msgspec.json.encode


def render_padded(response: ChatResponse, render: Render, *, has_field: bool) -> bytes:
    """Returns the events. The last of each piece has the padding: in a field of OpenAI's name, or before it as a
    comment, for clients that expect no such field."""
    return b"".join(
        _pad(render(piece), filler(size_bytes).encode(), has_field=has_field) for piece, size_bytes in _pieces(response)
    )


def _pieces(response: ChatResponse) -> Iterator[tuple[ChatResponse, int]]:
    """Yields the pieces one by one, each with the size of what it says."""
    if response.reasoning:
        yield ChatResponse(reasoning=response.reasoning), len(_encode(response.reasoning))
    for text in response.contents:
        yield ChatResponse(contents=[text], refusal=response.refusal), len(_encode(text))
    for call in response.tool_calls:
        yield ChatResponse(tool_calls=[call]), len(_encode(call.name)) + len(_encode(call.arguments))


def _pad(events: bytes, padding: bytes, *, has_field: bool) -> bytes:
    if not events.endswith(b"}\n\n"):
        # What is said waits for something, and is rendered with that.
        return events
    if has_field:
        return b'%b,"obfuscation":"%b"}\n\n' % (events[:-3], padding)
    at = events.rfind(b"\n\n", 0, -2) + 2 if b"\n\n" in events[:-2] else 0
    return b"%b: %b\n%b" % (events[:at], padding, events[at:])
