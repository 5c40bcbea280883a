"""More chats than can be answered: some are refused at once, and the others do not notice."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.chats import CHAT
from tests.e2e.raw_http import Answer, OpenChat, post_chat
from tests.support.service import ROUTES, Service
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

PLACES = 6
FEW_PLACES = ROUTES.replace("max_output_tokens = 131072", f"max_output_tokens = 131072\nconcurrency = {PLACES}")
CREDIT_NANOS = 5 * 10**9


@pytest.fixture(scope="module")
def small_service(shared_upstream: Upstream) -> Iterator[Service]:
    """Whose model may have only so many chats at once."""
    with Service(shared_upstream, routes=FEW_PLACES) as service:
        yield service


def check_refusal(answer: Answer) -> None:
    assert answer.status == 429
    assert (answer.error["type"], answer.error["code"]) == ("rate_limit_error", "saturated")
    assert 1 <= int(answer.headers["retry-after"]) <= 10


def open_running(service: Service, upstream: Upstream, api_key: str) -> OpenChat:
    """A chat whose answer has begun, and goes on for as long as the test does."""
    upstream.replies.append(Reply(contents=["It"], stall_after=2))
    chat = OpenChat(service, api_key, CHAT)
    chat.read_until(b'"It"')
    return chat


def open_of_many_keys(service: Service, upstream: Upstream, count: int) -> list[OpenChat]:
    """Opens chats, each with a key of its own: one key alone leaves places to keys that were refused lately."""
    return [open_running(service, upstream, service.new_key(service.new_account())) for _ in range(count)]


def test_greedy_key_cannot_starve_another(small_service: Service, upstream: Upstream) -> None:
    greedy_key, small_key = (small_service.new_key(small_service.new_account()) for _ in range(2))
    running = [open_running(small_service, upstream, small_key)]
    # Its half of the places and one; a little room is always left for keys that have less than their share.
    running += [open_running(small_service, upstream, greedy_key) for _ in range(PLACES // 2 + 1)]
    asked_before = len(upstream.requests)
    with ThreadPoolExecutor(10) as pool:
        refusals = list(pool.map(lambda _: post_chat(small_service, greedy_key, CHAT), range(20)))
        for refusal in refusals:
            check_refusal(refusal)
        assert len(upstream.requests) == asked_before
        # Nor while it keeps on asking.
        storm = pool.map(lambda _: post_chat(small_service, greedy_key, CHAT).status, range(50))
        served = [post_chat(small_service, small_key, CHAT).status for _ in range(10)]
        assert set(storm) == {429}
    assert served == [200] * 10
    for chat in running:
        chat.leave()


def test_refused_chat_is_free_and_leaves_nothing_held(small_service: Service, upstream: Upstream) -> None:
    account = small_service.new_account()
    api_key = small_service.new_key(account)
    running = open_of_many_keys(small_service, upstream, PLACES)
    check_refusal(post_chat(small_service, api_key, CHAT))
    assert small_service.settled_balance_nanos(account) == CREDIT_NANOS
    assert small_service.entries(account) == []
    assert small_service.usage(account) == []
    for chat in running:
        chat.leave()
    wait_until(lambda: post_chat(small_service, api_key, CHAT).status == 200)
    assert small_service.audit() == []


def test_running_chat_is_untouched_while_others_are_refused(small_service: Service, upstream: Upstream) -> None:
    api_key = small_service.new_key(small_service.new_account())
    running = open_of_many_keys(small_service, upstream, PLACES - 1)
    upstream.replies.append(Reply(contents=["It", " rains"], event_delay_s=1))
    watched = OpenChat(small_service, api_key, CHAT)
    watched.read_until(b'"It"')
    check_refusal(post_chat(small_service, api_key, CHAT))
    watched.read_until(b"[DONE]")
    assert b'" rains"' in watched.received
    for chat in (watched, *running):
        chat.leave()


def test_provider_that_says_it_is_full_is_429_with_its_time(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    # A shorter time is waited for.
    upstream.replies.append(Reply(status=429, headers={"retry-after": "6"}))
    answer = post_chat(service, api_key, CHAT)
    check_refusal(answer)
    assert answer.headers["retry-after"] == "6"
    # And is asked again when that time is over.
    wait_until(lambda: post_chat(service, api_key, CHAT).status == 200)
    assert service.settled_balance_nanos(account) > 0
