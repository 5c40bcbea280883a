"""A client that leaves: the upstream's request ends at once, and what was delivered is charged."""

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import OpenChat
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

CREDIT_NANOS = 5 * 10**9

SILENT = {
    "before the response": Reply(delay_s=600),
    "before the first event": Reply(first_event_delay_s=600),
    "before the first token": Reply(stall_after=1),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("silence", SILENT)
def test_leaving_before_the_first_token_is_free_litellm_37140(
    service: Service, upstream: Upstream, account: str, api_key: str, silence: str, stream: bool
) -> None:
    """There, nothing watched for it, so the upstream worked on, and what should have cleaned up never ran."""
    upstream.replies.append(SILENT[silence])
    chat = OpenChat(service, api_key, {"model": "fortissimo", "messages": QUESTION, "stream": stream})
    request = wait_for_requests(upstream)
    assert service.balance(account).held_nanos > 0
    chat.leave()
    wait_until(lambda: request.aborted)
    assert service.settled_balance_nanos(account) == CREDIT_NANOS
    assert service.audit() == []


# A large prompt takes a way of its own to the router.
@pytest.mark.parametrize("prompt_bytes", [10, 400_000])
def test_leaving_in_mid_stream_costs_what_was_delivered_litellm_13245(
    service: Service, upstream: Upstream, account: str, api_key: str, prompt_bytes: int
) -> None:
    """There, accounting hung on the client's connection, and no row was written; elsewhere the whole hold was
    refunded."""
    messages = [{"role": "user", "content": "x" * prompt_bytes}]
    upstream.replies.append(Reply(contents=["It", " rains", "."], stall_after=3))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": messages, "stream": True})
    chat.read_until(b'" rains"')
    [request] = upstream.requests
    assert not request.aborted
    chat.leave()
    wait_until(lambda: request.aborted)
    charged_nanos = CREDIT_NANOS - service.settled_balance_nanos(account)
    [row] = service.usage(account)
    assert row.usage.prompt_tokens > 0
    assert row.usage.completion_tokens == 2
    assert charged_nanos == 100 * row.usage.prompt_tokens + 210 * 2
    assert service.audit() == []


@pytest.mark.parametrize("prompt_bytes", [10, 400_000])
def test_client_that_was_killed_is_noticed_too(
    service: Service, upstream: Upstream, account: str, api_key: str, prompt_bytes: int
) -> None:
    messages = [{"role": "user", "content": "x" * prompt_bytes}]
    upstream.replies.append(Reply(contents=["It", " rains", "."], stall_after=3))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": messages, "stream": True})
    chat.read_until(b'" rains"')
    chat.reset()
    wait_until(lambda: upstream.requests[0].aborted)
    service.settled_balance_nanos(account)
    [hold] = service.holds(account)
    assert hold.end == "client_gone"


# The bigger ones together are more than is held of what comes too early.
@pytest.mark.parametrize("prompt_bytes", [10, 50_000])
def test_client_that_has_asked_again_before_it_left_is_noticed_too(
    service: Service, upstream: Upstream, account: str, api_key: str, prompt_bytes: int
) -> None:
    messages = [{"role": "user", "content": "x" * prompt_bytes}]
    upstream.replies.append(Reply(delay_s=600))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": messages})
    request = wait_for_requests(upstream)
    for _ in range(2):
        chat.ask_again()
    chat.leave()
    wait_until(lambda: request.aborted)
    assert service.settled_balance_nanos(account) == CREDIT_NANOS
    assert len(upstream.requests) == 1


def test_leaving_before_the_first_token_of_a_big_prompt_is_free(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    messages = [{"role": "user", "content": "x" * 400_000}]
    upstream.replies.append(Reply(stall_after=1))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": messages, "stream": True})
    request = wait_for_requests(upstream)
    chat.leave()
    wait_until(lambda: request.aborted)
    assert service.settled_balance_nanos(account) == CREDIT_NANOS


def test_leaving_in_the_middle_of_a_whole_answer_is_free(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains", "."], stall_after=3))
    chat = OpenChat(service, api_key, {"model": "fortissimo", "messages": QUESTION})
    request = wait_for_requests(upstream)
    assert request.json["stream"] is True
    chat.leave()
    wait_until(lambda: request.aborted)
    assert service.settled_balance_nanos(account) == CREDIT_NANOS


def test_closing_the_clients_stream_ends_the_upstreams(
    service: Service, client: openai.OpenAI, upstream: Upstream, account: str
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains"], repeat=100_000, event_delay_s=0.01))
    with client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True) as stream:
        for _ in range(5):
            next(stream)
    wait_until(lambda: upstream.requests[0].aborted)
    assert service.settled_balance_nanos(account) < CREDIT_NANOS
    assert service.audit() == []


def test_connection_that_stays_serves_the_next_request(
    service: Service, client: openai.OpenAI, upstream: Upstream
) -> None:
    for _ in range(3):
        with client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True) as stream:
            assert list(stream)[-1].usage is not None
    assert not any(request.aborted for request in upstream.requests)


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_half_closes_after_its_request_is_served(
    service: Service, upstream: Upstream, api_key: str, stream: bool
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains", "."], delay_s=0.3, event_delay_s=0.1))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": stream})
    chat.half_close()
    chat.read_to_end()
    chat.leave()
    assert b"HTTP/1.1 200 OK" in chat.received
    assert chat.received.count(b" rains") == 1
    assert chat.received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n" if stream else b"}")
    assert not upstream.requests[0].aborted


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_half_closes_and_then_leaves_is_noticed(
    service: Service, upstream: Upstream, account: str, api_key: str, stream: bool
) -> None:
    upstream.replies.append(Reply(delay_s=600))
    chat = OpenChat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": stream})
    request = wait_for_requests(upstream)
    chat.half_close()
    chat.read_until(b"100 Continue")
    assert not request.aborted
    chat.leave()
    wait_until(lambda: request.aborted)
    assert service.settled_balance_nanos(account) == CREDIT_NANOS


def test_client_that_leaves_right_after_its_request_is_no_failure(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    """The leaving was told as our failure, to those on call."""
    failures_before = service.log_text().count("request.failed")
    big = [{"role": "user", "content": "x" * 400_000}]
    for number in range(30):
        chat = OpenChat(service, api_key, {"model": "mezzo", "messages": big if number % 2 else QUESTION})
        if number % 3:
            chat.reset()
        else:
            chat.leave()
    assert service.settled_balance_nanos(account) <= CREDIT_NANOS
    assert service.log_text().count("request.failed") == failures_before
    assert service.audit() == []
