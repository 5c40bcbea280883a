"""Streams with long prompts through two routers, one of which stands still for a while."""

import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.e2e.raw_http import OpenChat, post_chat
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

FROZEN: Final = "router-1"
# Less than what has an RPC of its own, so that they share a stream with the heartbeats.
PROMPT_BYTES: Final = 150_000
PIECE: Final = " rain"
EVENT_DELAY_S: Final = 0.05
SILENT: Final = "exchange.silent"


@dataclass
class FrozenRouter:
    """What became of the chats; `cut` and `called_twice` should be empty."""

    cut: list[str] = field(default_factory=list)
    called_twice: list[str] = field(default_factory=list)
    # Of the chats that came when the silence was known.
    late_statuses: list[int] = field(default_factory=list)

    @property
    def violations(self) -> list[str]:
        found = [f"cut: {end}" for end in self.cut] + [f"called twice: {name}" for name in self.called_twice]
        return found + [f"a late chat had {status}" for status in self.late_statuses if status != 200]


def freeze_router(service: Service, upstream: Upstream, *, streams: int, frozen_s: float) -> FrozenRouter:
    """Half of the streams have begun when the router is stopped; the others are sent right then."""
    pieces = int((frozen_s + 5) / EVENT_DELAY_S)
    long_reply = Reply(contents=[PIECE] * pieces, event_delay_s=EVENT_DELAY_S)
    upstream.default_reply = long_reply
    upstream.requests.clear()
    api_key = service.new_key(service.new_account(credits="500.00"))
    chats: list[OpenChat] = []

    def send(name: str) -> None:
        content = f"<{name}> " + "rain and snow " * (PROMPT_BYTES // 14)
        body = {"model": "mezzo", "messages": [{"role": "user", "content": content}], "stream": True}
        chats.append(OpenChat(service, api_key, body, {"Connection": "close"}))

    for number in range(streams // 2):
        send(f"early-{number}")
    for chat in chats:
        chat.read_until(f'"{PIECE}"'.encode())
    silences = service.log_text().count(SILENT)
    service.signal(FROZEN, signal.SIGSTOP)
    try:
        resumes_at_s = time.monotonic() + frozen_s
        for number in range(streams - streams // 2):
            send(f"just-{number}")
        # By both edges.
        wait_until(lambda: service.log_text().count(SILENT) >= silences + 2)
        upstream.default_reply = Reply()
        outcome = FrozenRouter()
        late = {"model": "mezzo", "messages": [{"role": "user", "content": "<late> Is it raining?"}]}
        outcome.late_statuses += [post_chat(service, api_key, late).status for _ in range(4)]
        upstream.default_reply = long_reply
        time.sleep(max(0.0, resumes_at_s - time.monotonic()))
    finally:
        service.signal(FROZEN, signal.SIGCONT)
    readers = [threading.Thread(target=chat.read_to_end) for chat in chats]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    outcome.cut = [
        repr(chat.received[-200:])
        for chat in chats
        if b"data: [DONE]" not in chat.received or chat.received.count(f'"{PIECE}"'.encode()) != pieces
    ]
    for chat in chats:
        chat.leave()
    named = Counter(_name_in(request.json["messages"][-1]["content"]) for request in upstream.requests)
    outcome.called_twice = [name for name, times in named.items() if times > 1 and name != "late"]
    return outcome


def freeze_router_of_two(*, streams: int, frozen_s: float) -> FrozenRouter:
    """Does it with a service of its own."""
    with UpstreamThread() as upstream, Service(upstream, workers=2, routers=2, is_forked=False) as service:
        return freeze_router(service, upstream, streams=streams, frozen_s=frozen_s)


def _name_in(content: str) -> str:
    return content[1 : content.index(">")]
