"""The kinds of chats in the soak, with their weights."""

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from bench.children import TOKENS_A_CHUNK
from bench.targets import CLASS

# A class whose first model is unreachable, so that every chat may need the second.
UNSTEADY_CLASS: Final = "mezzo"

# The completion tokens that the mock upstream reports for an answer that is not streamed.
WHOLE_ANSWER_TOKENS: Final = 45
# The approximate duration of an answer that is not streamed.
WHOLE_ANSWER_S: Final = 0.03

_TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": "look_up_weather",
            "description": "How the weather will be.",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]


class Kind(NamedTuple):
    name: str
    weight: int
    # Number of chunks of a stream; 0: the response is not streamed.
    chunks: int = 0
    # Delay between chunks; 0: the provider writes all of them at once.
    pause_us: int = 0
    prompt_bytes: int = 0
    class_id: str = CLASS
    has_tools: bool = False
    # The client sends an Idempotency-Key.
    is_named: bool = False
    # The request is invalid.
    is_refused: bool = False

    @property
    def lasts_s(self) -> float:
        return self.chunks * self.pause_us / 1e6 or WHOLE_ANSWER_S

    @property
    def completion_tokens(self) -> int:
        return self.chunks or WHOLE_ANSWER_TOKENS

    @property
    def max_tokens(self) -> int:
        """Returns the most that a disconnected client is charged for, by our count."""
        return TOKENS_A_CHUNK * self.completion_tokens


KINDS: Final = (
    Kind("whole", 30),
    Kind("stream in a burst", 20, chunks=40),
    Kind("long stream in a burst", 2, chunks=2000),
    Kind("paced stream", 20, chunks=25, pause_us=20_000),
    Kind("named by its client", 8, is_named=True),
    Kind("with tools", 8, chunks=10, has_tools=True),
    Kind("long prompt", 3, prompt_bytes=40_000),
    Kind("big prompt", 1, chunks=10, prompt_bytes=300_000),
    Kind("first model away", 5, chunks=10, class_id=UNSTEADY_CLASS),
    Kind("wrong key", 2, is_refused=True),
    Kind("no such class", 1, class_id="pianissimo", is_refused=True),
)


def encode(kind: Kind, api_key: str) -> bytes:
    key = "sk-legato-unknown" if kind.name == "wrong key" else api_key
    body = json.dumps(_chat(kind), separators=(",", ":")).encode()
    head = {
        "host": "bench",
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "content-length": str(len(body)),
        **_name(kind),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"POST /v1/chat/completions HTTP/1.1\r\n{lines}\r\n".encode() + body


def _chat(kind: Kind) -> dict[str, Any]:
    wish = f"chunks={kind.chunks} pause_us={kind.pause_us}" if kind.chunks else ""
    question = f"{wish} How will the weather be tomorrow?" + " And the day after?" * (kind.prompt_bytes // 19)
    chat: dict[str, Any] = {
        "model": kind.class_id,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": kind.max_tokens,
    }
    if kind.chunks:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    if kind.has_tools:
        chat["tools"] = _TOOLS
    return chat


def _name(kind: Kind) -> Mapping[str, str]:
    return {"idempotency-key": secrets.token_hex(16)} if kind.is_named else {}
