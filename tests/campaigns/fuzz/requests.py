"""Requests that are not sent in good faith, each made from its own seed: its head, its body, how that is framed,
and how all of it is brought."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.campaigns.fuzz.dialects import COUNT_PATH, IN_TERMS_OF, MESSAGES_PATH, OWN, RESPONSES_PATH

CHAT_PATH: Final = "/v1/chat/completions"
PATHS: Final = (
    CHAT_PATH,
    CHAT_PATH,
    CHAT_PATH,
    MESSAGES_PATH,
    MESSAGES_PATH,
    COUNT_PATH,
    RESPONSES_PATH,
    RESPONSES_PATH,
    "/v1/models",
    "/v1%2fmodels",
    "/v1/usage?group=a%2Cb",
    "/%00",
    "*",
    "/" + "x" * 500,
)
HEADS: Final = (
    "plain",
    "plain",
    "plain",
    "no host",
    "two hosts",
    "tiny headers",
    "long header",
    "old",
    "offer",
    "gzip",
    "expects",
)
FRAMES: Final = (
    "length",
    "length",
    "chunks",
    "tiny chunks",
    "extended chunks",
    "trailers",
    "too long",
    "too short",
    "garbled",
)
ENDS: Final = ("waits", "waits", "half-closes", "leaves", "leaves early", "asks twice")


@dataclass(frozen=True, slots=True)
class HostileRequest:
    """A request sent in pieces, and what its client does then."""

    name: str
    pieces: list[bytes]
    pause_s: float
    end: str

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces))


@dataclass(slots=True)
class RequestMaker:
    """`keys` are those it may use; one of them is wrong, and one has no credit."""

    random: random.Random
    keys: list[str]
    largest_bytes: int
    paths: Sequence[str] = PATHS
    host: str = "fuzz"
    _shapes: list[Callable[[int], Any]] = field(init=False)

    def __post_init__(self) -> None:
        self._shapes = [
            self._plain, self._lists_in("metadata"), self._lists_in("stream_options"), self._lists_in("unknown"),
            self._lists_as("messages"), self._lists_as("tools"), self._lists_as("stop"), self._lists_as("tool_choice"),
            self._many_messages, self._many_parts, self._many_calls, self._many_tools, self._schema, self._deep,
            self._numbers, self._escapes,
        ]  # fmt: skip

    def make(self) -> HostileRequest:
        choose = self.random.choice
        head, frame, end, path = choose(HEADS), choose(FRAMES), choose(ENDS), choose(self.paths)
        shape = choose(self._shapes)
        size_bytes = int(self.largest_bytes ** self.random.uniform(0.4, 1))
        body = self._body(shape, size_bytes, path)
        sent = self._head(head, frame, path, body) + self._framed(frame, body)
        if end == "asks twice":
            sent += sent[: self.random.randrange(len(sent))]
        if end == "leaves early":
            sent = sent[: self.random.randrange(1, len(sent))]
        shape_name = getattr(shape, "__name__", "shape").strip("_")
        return HostileRequest(
            f"{path[:30]} {head}, {shape_name} of {len(body)} bytes, {frame}, {end}",
            self._split(sent),
            choose([0.0, 0.0, 0.01]),
            end,
        )

    def _body(self, shape: Callable[[int], Any], size_bytes: int, path: str) -> bytes:
        chat = shape(size_bytes)
        # Some are sent to another dialect as they are.
        kind = self.random.random()
        if path in OWN and kind < 0.3:
            chat = OWN[path](size_bytes, self.random)
        elif path in IN_TERMS_OF and kind < 0.9:
            chat = IN_TERMS_OF[path](chat)
        body = json.dumps(chat, ensure_ascii=self.random.random() < 0.5).encode("utf-8", "surrogatepass")
        damage = self.random.random()
        if damage < 0.1:
            return body[: self.random.randrange(len(body))]
        if damage < 0.2:
            at = self.random.randrange(len(body))
            return body[:at] + self.random.randbytes(3) + body[at:]
        return body

    def _head(self, head: str, frame: str, path: str, body: bytes) -> bytes:
        version = "1.0" if head == "old" and frame in ("length", "too long", "too short") else "1.1"
        lines = [f"{self.random.choice(['POST', 'POST', 'POST', 'GET', 'OPTIONS'])} {path} HTTP/{version}"]
        lines += {"no host": [], "two hosts": ["Host: a", "Host: b"]}.get(head, [f"Host: {self.host}"])
        if key := self.random.choice(["", *self.keys]):
            lines.append(f"Authorization: Bearer {key}")
        if head == "tiny headers":
            lines += ["a:"] * self.random.choice([150, 250, 30_000])
        elif head == "long header":
            lines.append("a: " + "b" * self.random.choice([10_000, 100_000]))
        elif head == "offer":
            lines += ["Connection: Upgrade", f"Upgrade: {self.random.choice(['h2c', 'websocket'])}"]
        elif head == "expects":
            lines.append("Expect: 100-continue")
        lengths = {"length": len(body), "too long": len(body) + 1000, "too short": max(0, len(body) - 5)}
        if frame in lengths:
            lines.append(f"Content-Length: {lengths[frame]}")
        else:
            lines.append(f"Transfer-Encoding: {'gzip, chunked' if head == 'gzip' else 'chunked'}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _framed(self, frame: str, body: bytes) -> bytes:
        if frame in ("length", "too long", "too short"):
            return body
        if frame == "garbled":
            return b"zz\r\n" + body
        largest = {"tiny chunks": 1, "extended chunks": 100}.get(frame, 8_192)
        extension = b";x=" + b"y" * 200 if frame == "extended chunks" else b""
        pieces, begin = [], 0
        while begin < len(body):
            size = self.random.randint(1, largest)
            piece = body[begin : begin + size]
            pieces.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
            begin += size
        trailers = b"a: b\r\n" * self.random.choice([1, 100, 1_000]) if frame == "trailers" else b""
        return b"".join(pieces) + b"0\r\n" + trailers + b"\r\n"

    def _split(self, sent: bytes) -> list[bytes]:
        """Cuts it as a network might: not at all, or somewhere."""
        cuts = sorted(self.random.randrange(len(sent)) for _ in range(self.random.choice([0, 0, 1, 5, 20])))
        return [sent[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]

    # Bodies of about so many bytes.

    def _chat(self, **fields: Any) -> dict[str, Any]:
        return {"model": "mezzo", "messages": [{"role": "user", "content": "Is it raining?"}], **fields}

    def _plain(self, size_bytes: int) -> Any:
        stream = self.random.random() < 0.5
        return self._chat(messages=[{"role": "user", "content": "word " * (size_bytes // 5)}], stream=stream)

    def _lists_in(self, name: str) -> Callable[[int], Any]:
        return lambda size_bytes: self._chat(**{name: {"a": [[]] * (size_bytes // 4)}})

    def _lists_as(self, name: str) -> Callable[[int], Any]:
        return lambda size_bytes: self._chat(**{name: [[]] * (size_bytes // 4)})

    def _many_messages(self, size_bytes: int) -> Any:
        return self._chat(messages=[{"role": "user", "content": "a"}] * (size_bytes // 34))

    def _many_parts(self, size_bytes: int) -> Any:
        parts = [{"type": "text", "text": "a"}] * (size_bytes // 31)
        return self._chat(messages=[{"role": "user", "content": parts}])

    def _many_calls(self, size_bytes: int) -> Any:
        calls = [
            {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            for number in range(size_bytes // 150)
        ]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "a"} for call in calls]
        question = {"role": "user", "content": "Is it raining?"}
        return self._chat(messages=[question, {"role": "assistant", "tool_calls": calls}, *results])

    def _many_tools(self, size_bytes: int) -> Any:
        tools = [{"type": "function", "function": {"name": f"f{number}"}} for number in range(size_bytes // 60)]
        return self._chat(tools=tools)

    def _schema(self, size_bytes: int) -> Any:
        parameters = {"type": "object", "enum": [[]] * (size_bytes // 4)}
        return self._chat(tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}])

    def _deep(self, size_bytes: int) -> Any:
        value: Any = []
        for _ in range(min(400, size_bytes)):
            value = [value]
        return self._chat(metadata={"a": value}, stop=["x" * size_bytes])

    def _numbers(self, size_bytes: int) -> Any:
        return self._chat(max_tokens=10**300, seed=-(10 ** min(400, size_bytes)), temperature=1e300)

    def _escapes(self, size_bytes: int) -> Any:
        return self._chat(messages=[{"role": "user", "content": "\u0434\ud83c\\" * (size_bytes // 8)}])
