"""A service that tests may kill, and chats whose end is checked against the written rules."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.chats import CHAT, QUESTION, RAIN, USAGE
from tests.e2e.raw_http import OpenChat, post_chat
from tests.e2e.rules import check_books, read_rules, usage_to_charge
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Recorded, Reply, Upstream

RULES = read_rules("What failed of ours")
CREDIT_NANOS = 5 * 10**9


@dataclass(frozen=True)
class Running:
    """A chat on an account of its own."""

    account: str
    chat: OpenChat
    request: Recorded


class ServiceHarness:
    def __init__(self, service: Service, upstream: Upstream, failpoints: Path) -> None:
        """The service was told to look for its failpoints in that folder."""
        self.service = service
        self._upstream = upstream
        self._failpoints = failpoints
        self.prompt_tokens = self._count_prompt()

    def open(self, reply: Reply, body: dict[str, Any] = CHAT, *, read: bytes = b"") -> Running:
        """A chat that the upstream knows of, and of whose answer this much was read."""
        account = self.service.new_account()
        self._upstream.replies.append(reply)
        chat = OpenChat(self.service, self.service.new_key(account), body)
        request = wait_for_requests(self._upstream, len(self._upstream.requests) + 1)
        chat.read_until(read)
        return Running(account, chat, request)

    def kill_at(self, place: str) -> None:
        """The process that comes there next dies."""
        (self._failpoints / place).write_text("1")

    def check(self, what: str, running: Running) -> None:
        """Checks by its rule what the client saw and what is in the books."""
        running.chat.leave()
        rule, received = RULES[what], running.chat.received
        delivered = "".join(word for word in RAIN if f'"{word}"'.encode() in received)
        assert (delivered != "") == rule.seen.startswith(("all", "a part", "the piece"))
        assert (b"[DONE]" in received) == (rule.seen == "all of it")
        assert (b'data: {"error":' in received) == rule.seen.endswith("an error")
        assert received.startswith(b"HTTP/1.1 503") == (rule.seen == "503")
        assert bool(received) == (rule.seen != "a broken connection")
        usage = usage_to_charge(rule, USAGE, self.prompt_tokens, delivered)
        check_books(self.service, running.account, CREDIT_NANOS, rule, usage)

    def _count_prompt(self) -> int:
        """Counts the question, with all before it, as we do."""
        self._upstream.replies.append(Reply(usage=None))
        api_key = self.service.new_key(self.service.new_account())
        answer = post_chat(self.service, api_key, {"model": "mezzo", "messages": QUESTION})
        return int(answer.json["usage"]["prompt_tokens"])
