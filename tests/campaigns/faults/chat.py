"""One request, and two of its three books: what the provider sent, and what the client received."""

import asyncio
import json
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from services.router.providers.http.stream import AFTER_ANSWER_S
from tests.campaigns.faults.harnesses.parts import WORD, Part
from tests.support.upstreams.openai import Recorded, Reply

# Said by the provider, and by no count of ours: a charge by it has believed the provider.
PROVIDER_PROMPT_TOKENS = 1_000
PROVIDER_HIDDEN_TOKENS = 5


_CUT_WORD = re.compile(rb'"content":"(?: rain)* (?:r|ra|rai)?"')


class Tokens(NamedTuple):
    prompt: int
    completion: int


class Customer(NamedTuple):
    """A client: one account with one key."""

    account_id: str
    api_key: str
    key_id: str = ""


@dataclass
class Received:
    """The client's book."""

    raw: bytearray = field(default_factory=bytearray)
    # Nothing more will come.
    is_over: bool = False
    left: bool = False
    hung: bool = False
    # How the connection broke, where it did.
    error: str = ""

    @property
    def tokens(self) -> int:
        # Head, chunk sizes and JSON hold no such word of their own. Where the credit ends, a word may be cut: what is
        # left of it is a token too.
        return self.raw.count(WORD.encode()) + (_CUT_WORD.search(self.raw) is not None)

    @property
    def status(self) -> int | None:
        head = bytes(self.raw[:12])
        return int(head[9:]) if head.startswith(b"HTTP/1.1 ") and len(head) == 12 else None

    @property
    def _body(self) -> bytes:
        return bytes(self.raw).partition(b"\r\n\r\n")[2]

    @property
    def ending(self) -> str:
        """The client's view: done, told (of an error), refused, left, hung or broken."""
        if self.status == 200 and b"data: [DONE]" in self.raw:
            return "done"
        if self.status == 200 and b'data: {"error"' in self.raw:
            return "told"
        if self.status is not None and b"content-type: application/json" in self.raw and self._json() is not None:
            return "done" if self.status == 200 else "refused"
        if self.left:
            return "left"
        return "hung" if self.hung else "broken"

    @property
    def ended_early(self) -> bool:
        """Tells if the credit or the time for an answer ran out."""
        return b'"finish_reason":"length"' in self.raw

    @property
    def usage(self) -> Tokens | None:
        """Usage told to the client at the end."""
        if b'"usage":' not in self.raw:
            return None
        told, _ = json.JSONDecoder().raw_decode(bytes(self.raw).partition(b'"usage":')[2].decode())
        return Tokens(told["prompt_tokens"], told["completion_tokens"])

    def _json(self) -> object:
        try:
            return json.loads(self._body)
        except ValueError:
            return None


class Chat:
    def __init__(self, part: Part, customer: Customer, tag: str, idempotency_key: str = "") -> None:
        self.part = part
        self.customer = customer
        self.tag = tag
        self.idempotency_key = idempotency_key
        self.prompt = f"{tag} How is the weather in Paris?" + " a b" * (part.dense_words // 2)
        self.received = Received()
        # The provider's book: each time that it was asked, by whatever router.
        self.asked: list[Recorded] = []
        # When each write of each stream was begun, by the request's id in memory.
        self._written_at_s: defaultdict[int, list[float]] = defaultdict(list)
        self._moved = asyncio.Event()

    @property
    def messages_json(self) -> bytes:
        return json.dumps([{"role": "user", "content": self.prompt}]).encode()

    @property
    def body(self) -> bytes:
        fields = {"model": self.part.model, "stream": self.part.streamed}
        return json.dumps({**fields, "messages": json.loads(self.messages_json)}).encode()

    @property
    def provider_usage(self) -> Tokens:
        return Tokens(PROVIDER_PROMPT_TOKENS, self.part.tokens + PROVIDER_HIDDEN_TOKENS)

    @property
    def sent_tokens(self) -> int:
        """The most that any asking of the provider has sent."""
        return max((self._sent_pieces(recorded) for recorded in self.asked), default=0) * self.part.piece_tokens

    @property
    def sent_end(self) -> bool:
        return any(self._is_whole(recorded) or recorded.writes > self.part.pieces + 1 for recorded in self.asked)

    @property
    def usage_was_late(self) -> bool:
        """Tells if the router may have stopped waiting for the usage, because this process was slow to send it. Then it
        charges by its own count."""
        return any(self._usage_took_s(recorded) >= AFTER_ANSWER_S for recorded in self.asked)

    @property
    def still_asked(self) -> bool:
        return any(not recorded.ended.is_set() for recorded in self.asked)

    @property
    def wants_to_leave(self) -> bool:
        after = self.part.leaves_after
        return after is not None and bool(self.asked) and self.received.tokens >= after * self.part.piece_tokens

    def again(self) -> "Chat":
        """The same request once more, byte for byte."""
        return Chat(self.part, self.customer, self.tag, self.idempotency_key)

    def reply(self) -> Reply:
        part, usage = self.part, self.provider_usage
        return Reply(
            status=part.status,
            contents=[WORD * part.piece_tokens],
            repeat=part.pieces,
            usage={"prompt_tokens": usage.prompt, "completion_tokens": usage.completion, "total_tokens": sum(usage)},
            event_delay_s=part.pause_s,
            # The first event carries the role.
            cut_after=None if part.cut_after is None else part.cut_after + 1,
        )

    def tell_move(self) -> None:
        """Something happened in this chat: the parts that wait for their turn look again."""
        self._moved.set()

    async def moved(self) -> None:
        await self._moved.wait()
        self._moved.clear()

    def may_write(self, recorded: Recorded) -> bool:
        """A piece goes only when the client has all those before it, so at most one is under way at any time."""
        if not self.part.streamed and self.part.leaves_after is None:
            return True
        piece = recorded.writes
        if self.part.leaves_after is not None and piece > self.part.leaves_after:
            return False
        return self.received.tokens >= min(piece - 1, self.part.pieces) * self.part.piece_tokens

    def note_write(self, recorded: Recorded, at_s: float | None = None) -> None:
        """Notes that a write of a stream begins."""
        self._written_at_s[id(recorded)].append(time.monotonic() if at_s is None else at_s)

    def _usage_took_s(self, recorded: Recorded) -> float:
        """The longest time that the router can have waited: from before the finish reason was written until the usage
        was, or until the router went away."""
        # The role, the pieces, the finish reason, the usage, the end.
        written_at_s, finish = self._written_at_s[id(recorded)], self.part.pieces + 1
        if len(written_at_s) <= finish:
            return 0.0
        if len(written_at_s) > finish + 2:
            return written_at_s[finish + 2] - written_at_s[finish]
        return (recorded.aborted_at_s or time.monotonic()) - written_at_s[finish]

    def _is_whole(self, recorded: Recorded) -> bool:
        return not recorded.json.get("stream") and recorded.answered and self.part.status == 200

    def _sent_pieces(self, recorded: Recorded) -> int:
        if self._is_whole(recorded):
            return self.part.pieces
        return max(0, min(recorded.writes - 1, self.part.pieces))
