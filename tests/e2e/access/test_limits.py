"""Limits of a key, exact whichever edge and whichever metering its requests come to."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.chats import CHAT, QUESTION
from tests.e2e.fleet import Edge, Fleet, MadeKey
from tests.e2e.raw_http import Answer, OpenChat, ask, post_chat
from tests.support.servers.postgres import Postgres
from tests.support.servers.valkey import Valkey
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

# One request a minute: no time passes while a test runs.
BURST = 40
SETTINGS = {"LEGATO_REQUESTS_PER_MINUTE": "1", "LEGATO_REQUEST_BURST": str(BURST)}
STALLED = Reply(contents=["It", " rains"], stall_after=3)
FIGURES = [
    f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
]  # fmt: skip


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    """One of its own, since it is stopped."""
    server = Valkey()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def metering_url(postgres_server: Postgres) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="module")
def replicated_fleet(shared_upstream: Upstream, metering_url: str, valkey: Valkey) -> Iterator[Fleet]:
    shared = {"LEGATO_DATABASE_URL": metering_url, "LEGATO_VALKEY_URL": valkey.url}
    with Fleet(shared_upstream, SETTINGS | shared, meterings=2) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def fleet_in_memory(shared_upstream: Upstream) -> Iterator[Fleet]:
    with Fleet(shared_upstream, SETTINGS) as fleet:
        yield fleet


@pytest.fixture(params=["fleet_in_memory", "replicated_fleet"])
def fleet(request: pytest.FixtureRequest, upstream: Upstream) -> Iterator[Fleet]:
    """Three edges with one metering that keeps limits in memory, and with two that share them."""
    fleet: Fleet = request.getfixturevalue(request.param)
    yield fleet
    assert fleet.audit() == []


class Crowd:
    """Many who ask at once, spread over all edges."""

    def __init__(self, fleet: Fleet, key: MadeKey, body: dict[str, Any] = CHAT) -> None:
        self._fleet = fleet
        self._key = key
        self._body = body
        self._chats: list[OpenChat] = []

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *failure: object) -> None:
        for chat in self._chats:
            chat.leave()

    def ask(self, count: int) -> Counter[str]:
        """Counts the first answers; who was let in stays."""
        with ThreadPoolExecutor(count) as threads:
            return Counter(threads.map(self._ask_until_told, range(count)))

    def _ask_until_told(self, number: int) -> str:
        """Asks again where keys are not verified in time on a busy machine, which takes nothing."""
        edge = self._fleet.edges[number % len(self._fleet.edges)]
        return wait_until(lambda: (code := self._ask_one(edge)) != "service_unavailable" and code) or ""

    def _ask_one(self, edge: Edge) -> str:
        chat = OpenChat(edge, self._key.api_key, self._body)
        self._chats.append(chat)
        chat.read_until(b"\r\n\r\n")
        if chat.received.startswith(b"HTTP/1.1 200 "):
            return "let in"
        chat.read_until(b'"code":')
        chat.read_until(b"}}")
        return chat.received.partition(b'"code":"')[2].partition(b'"')[0].decode()


def figures(answer: Answer) -> dict[str, str]:
    return {name: answer.headers[name] for name in FIGURES}


def left(answer: Answer) -> tuple[int, int]:
    """Requests and tokens."""
    return int(answer.headers["x-ratelimit-remaining-requests"]), int(answer.headers["x-ratelimit-remaining-tokens"])


def test_exactly_as_many_requests_pass_as_allowed(fleet: Fleet) -> None:
    key = fleet.new_key()

    def list_models(number: int) -> int:
        while (status := ask(fleet.edges[number % 3], "GET", "/v1/models", key.api_key).status) == 503:
            time.sleep(0.1)
        return status

    with ThreadPoolExecutor(30) as threads:
        assert Counter(threads.map(list_models, range(10 * BURST))) == {200: BURST, 429: 9 * BURST}
    refused = post_chat(fleet.edges[0], key.api_key, CHAT)
    assert (refused.status, refused.error["type"], refused.error["code"]) == (
        429, "rate_limit_error", "rate_limit_exceeded",
    )  # fmt: skip
    assert "requests" in refused.error["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert figures(refused) == figures(refused) | {
        "x-ratelimit-limit-requests": "1",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-remaining-tokens": "0",
    }


def test_exactly_as_many_chats_run_at_once_as_allowed_and_the_others_take_nothing(
    fleet: Fleet, upstream: Upstream
) -> None:
    upstream.default_reply = STALLED
    key = fleet.new_key(concurrent_requests=3)
    with Crowd(fleet, key) as crowd:
        assert crowd.ask(30) == {"let in": 3, "concurrency_limit_exceeded": 27}
        # What those 27 took is given back beside their answers.
        wait_until(lambda: left(refused_chat(fleet, key))[0] == BURST - 3)
        refused = refused_chat(fleet, key)
        assert refused.headers["retry-after"] == "1"
        assert figures(refused)["x-ratelimit-remaining-requests"] == str(BURST - 3)
    upstream.default_reply = Reply()
    # Who left makes room, on whichever edge.
    wait_until(lambda: post_chat(fleet.edges[2], key.api_key, CHAT).status == 200)


def refused_chat(fleet: Fleet, key: MadeKey) -> Answer:
    answer = post_chat(fleet.edges[1], key.api_key, CHAT)
    assert (answer.status, answer.error["code"]) == (429, "concurrency_limit_exceeded")
    return answer


def test_exactly_as_many_tokens_pass_as_allowed_and_a_refused_chat_takes_none(fleet: Fleet, upstream: Upstream) -> None:
    upstream.default_reply = STALLED
    # A guess of a thousand tokens each: it takes twenty seconds until there are enough for one more.
    body = CHAT | {"messages": [{"role": "user", "content": "x" * 3_900}]}
    key = fleet.new_key(tokens_per_minute=3_100)
    with Crowd(fleet, key, body) as crowd:
        assert crowd.ask(30) == {"let in": 3, "rate_limit_exceeded": 27}
        refused = post_chat(fleet.edges[1], key.api_key, body)
        assert "tokens" in refused.error["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 20
        assert refused.headers["x-ratelimit-limit-tokens"] == "3100"
        requests_left, tokens_left = left(refused)
        assert requests_left == BURST - 3
        assert tokens_left < 1_000


def test_tokens_are_corrected_by_what_was_used(fleet: Fleet, upstream: Upstream) -> None:
    key = fleet.new_key(tokens_per_minute=3_000)
    body = CHAT | {"messages": [{"role": "user", "content": "x" * 8_000}]}
    answer = post_chat(fleet.edges[0], key.api_key, body)
    assert answer.status == 200
    # A guess of two thousand was taken; eighteen were used, by the provider's count.
    assert left(answer)[1] < 1_000
    assert set(FIGURES) <= answer.headers.keys()
    wait_until(lambda: left(post_chat(fleet.edges[1], key.api_key, CHAT))[1] > 2_800)
    # And the other way: an answer that was longer than anybody could guess.
    upstream.default_reply = Reply(usage={"prompt_tokens": 11, "completion_tokens": 9_000})
    assert post_chat(fleet.edges[2], key.api_key, CHAT).status == 200
    upstream.default_reply = Reply()
    wait_until(lambda: post_chat(fleet.edges[0], key.api_key, CHAT).status == 429)
    refused = post_chat(fleet.edges[0], key.api_key, CHAT)
    assert "tokens" in refused.error["message"]
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"


def test_body_without_a_length_counts_by_what_has_come(fleet: Fleet, upstream: Upstream) -> None:
    """Fifty thousand tokens in chunks passed for one."""
    key = fleet.new_key(tokens_per_minute=10_000)
    # A guess of nine thousand: it takes nearly a minute until nothing of that is missing, and only then is more given
    # than there is in a minute.
    upstream.replies.append(STALLED)
    running = OpenChat(fleet.edges[0], key.api_key, CHAT | {"user": "x" * 36_000, "stream": True})
    running.read_until(b" rains")
    asked = len(upstream.requests)
    body = json.dumps(CHAT | {"messages": [{"role": "user", "content": "x" * 200_000}]}).encode()
    for edge in fleet.edges:
        pieces = (body[begin : begin + 20_000] for begin in range(0, len(body), 20_000))
        refused = ask(edge, "POST", "/v1/chat/completions", key.api_key, pieces)
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "tokens" in refused.error["message"]
        assert int(refused.headers["retry-after"]) > 0
        assert len([name for name in refused.headers if name.startswith("x-ratelimit-")]) == 6
    assert len(upstream.requests) == asked
    # A short one is served, and takes what it has.
    short = iter([json.dumps(CHAT).encode()])
    assert ask(fleet.edges[0], "POST", "/v1/chat/completions", key.api_key, short).status == 200
    running.leave()


def test_chat_that_is_refused_for_its_body_is_told_that_its_tokens_came_back(fleet: Fleet) -> None:
    key = fleet.new_key(tokens_per_minute=3_000)
    # A guess of two thousand was taken.
    answer = post_chat(fleet.edges[0], key.api_key, {"messages": [], "user": "x" * 8_000})
    assert answer.status == 400
    assert left(answer) == (BURST - 1, 3_000)


def test_chats_of_an_edge_that_was_killed_make_room_again(fleet: Fleet, upstream: Upstream) -> None:
    upstream.replies.append(STALLED)
    key = fleet.new_key(concurrent_requests=1)
    with Crowd(fleet, key) as crowd:
        assert crowd.ask(1) == {"let in": 1}
        assert post_chat(fleet.edges[1], key.api_key, CHAT).status == 429
        fleet.restart("edge-1")
        wait_until(lambda: post_chat(fleet.edges[1], key.api_key, CHAT).status == 200)


def test_without_valkey_each_metering_allows_its_share_and_no_request_waits_for_it(
    replicated_fleet: Fleet, upstream: Upstream, valkey: Valkey
) -> None:
    fleet = replicated_fleet
    key, whole = fleet.new_key(), {"model": "mezzo", "messages": QUESTION}
    with valkey.paused():
        statuses = [post_chat(fleet.edges[number % 3], key.api_key, whole).status for number in range(BURST)]
    assert Counter(statuses) == {200: BURST // 2, 429: BURST - BURST // 2}
    assert '"limits.local"' in fleet.log_text()
    # Back again, the meterings share what they had last agreed on: nothing of this, unless it heard of the first.
    wait_until(lambda: fleet.log_text().count('"limits.shared"') == fleet.log_text().count('"limits.local"'))
    assert left(post_chat(fleet.edges[0], key.api_key, whole))[0] >= BURST - 2
