"""Repeats what cost others their money, or their customers': each test brings about what happened, and is named after
the report of it. Incidents that another test repeats already are named there.
"""

import json
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import openai
import pytest

from services.router.prompts.tokens import count
from tests.e2e.chats import CHAT, QUESTION, RAIN, USAGE
from tests.e2e.harness import CREDIT_NANOS, ServiceHarness
from tests.e2e.raw_http import OpenChat, ask, post_chat
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream
from tests.support.waiting import wait_until

CHAT_NANOS = 11 * 100 + 7 * 210
COMPLAINT = "The server is overloaded, please ask its operator about your plan. " * 40


def test_worker_that_is_recycled_loses_no_spend_litellm_34805(harness: ServiceHarness) -> None:
    """There, what waited in memory to be booked was dropped whenever a worker was told to end."""
    service = harness.service
    chats = [harness.open(Reply(event_delay_s=0.2), read=b'"Hello"') for _ in range(5)]
    # So that every settlement still waits in the edge when it ends.
    service.signal("metering", signal.SIGSTOP)
    for running in chats:
        running.chat.read_until(b"[DONE]")
        running.chat.leave()
    edge = Path(f"/proc/{service.process_id('edge-1')}")
    with service.restart_of("edge-1"):
        service.signal("edge-1", signal.SIGTERM)
        wait_until(lambda: not edge.exists())
        service.signal("metering", signal.SIGCONT)
    for running in chats:
        assert service.settled_balance_nanos(running.account) == CREDIT_NANOS - CHAT_NANOS


def test_delivered_answer_is_not_refunded_when_its_accounting_throws_eliza_10837(harness: ServiceHarness) -> None:
    service = harness.service
    with broken_ledger(service):
        running = harness.open(Reply(contents=RAIN, usage=USAGE), read=b"[DONE]")
        running.chat.leave()
        wait_until(lambda: '"settlement.refused"' in service.log_text())
        [hold] = service.holds(running.account)
        assert (hold.state, service.balance(running.account).held_nanos) == ("held", hold.amount_nanos)
    # The edge tries again after half a minute, and when it starts.
    service.kill("edge-1")
    assert service.settled_balance_nanos(running.account) == CREDIT_NANOS - CHAT_NANOS


@contextmanager
def broken_ledger(service: Service) -> Iterator[None]:
    with closing(sqlite3.connect(service.data / "metering.db", timeout=20, isolation_level=None)) as database:
        database.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON ledger WHEN NEW.kind = 'charge'"
            " BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        yield
        database.execute("DROP TRIGGER broken")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("usage", [{"prompt_tokens": 900, "completion_tokens": 0}, None])
def test_answer_with_nothing_in_it_is_free_new_api_4168(
    service: Service, upstream: Upstream, account: str, api_key: str, usage: dict[str, int] | None, stream: bool
) -> None:
    upstream.replies.append(Reply(contents=[], usage=usage))
    assert post_chat(service, api_key, {**CHAT, "stream": stream}).status == 200
    assert service.settled_balance_nanos(account) == CREDIT_NANOS
    [hold] = service.holds(account)
    assert (hold.state, hold.end) == ("void", "complete")
    assert service.usage(account) == []


ERRORS = {
    "in place of an answer": (Reply(status=500, body=COMPLAINT), 0),
    "with a status of success": (Reply(body=f'{{"error":{{"message":"{COMPLAINT}"}}}}'), 0),
    "in mid-stream": (
        Reply(events=['{"choices":[{"delta":{"content":"It rains"}}]}', f'{{"error":{{"message":"{COMPLAINT}"}}}}']),
        count("It rains"),
    ),
}


@pytest.mark.parametrize("where", ERRORS)
def test_error_text_is_not_billed_as_output_new_api_5288(
    service: Service, upstream: Upstream, account: str, api_key: str, where: str
) -> None:
    """Elsewhere, it was charged at the price of output."""
    reply, delivered_tokens = ERRORS[where]
    upstream.default_reply = reply
    answer = post_chat(service, api_key, CHAT)
    assert b"overloaded" not in answer.body
    service.settled_balance_nanos(account)
    assert sum(entry.completion_tokens for entry in service.entries(account)) == delivered_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_are_not_counted_twice_litellm_15740(
    service: Service, upstream: Upstream, account: str, api_key: str, stream: bool
) -> None:
    """A cached image's tokens are in three of the provider's counts."""
    details = {"cached_tokens": 2_432, "image_tokens": 1_142, "text_tokens": 1_319}
    upstream.replies.append(
        Reply(usage={"prompt_tokens": 2_461, "completion_tokens": 303, "prompt_tokens_details": details})
    )
    assert post_chat(service, api_key, {**CHAT, "stream": stream}).status == 200
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - (29 * 100 + 2_432 * 20 + 303 * 210)


def test_running_count_of_a_cut_stream_is_not_taken_for_the_final_one_facility_248(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    said = '{{"choices":[{{"delta":{{"content":"{}"}}}}],"usage":{{"prompt_tokens":1,"completion_tokens":1}}}}'
    upstream.replies.append(Reply(events=[said.format("It"), said.format(" rains")], done=False))
    assert post_chat(service, api_key, CHAT).events[-1].keys() == {"error"}
    service.settled_balance_nanos(account)
    [entry] = service.entries(account)
    assert (entry.completion_tokens, entry.basis, entry.end) == (2, "counted", "upstream_cut")
    assert entry.prompt_tokens > 1


def test_attempts_of_a_client_that_retries_are_charged_once_macprovider_762(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    """Clients try again by themselves, twice, and send no key by which we would know it."""
    upstream.replies.extend([Reply(status=500), Reply(status=429)])
    with openai.OpenAI(base_url=service.base_url, api_key=api_key, max_retries=2) as client:
        completion = client.chat.completions.create(model="mezzo", messages=QUESTION)
    assert completion.choices[0].message.content == "Hello, world!"
    assert len(upstream.requests) == 3
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - CHAT_NANOS


FAILURES: dict[str, Reply] = {
    "an error": Reply(status=500),
    "a refusal": Reply(status=422),
    "too long": Reply(status=400, body=TOO_LONG),
    "cut": Reply(cut_after=1),
    "garbage": Reply(events=["{{{"]),
}


def test_failed_requests_leave_no_credit_held_litellm_27639(service: Service, upstream: Upstream) -> None:
    """There, holds that were not given back added up, until nothing was admitted."""
    account = service.new_account("0.00002")
    api_key = service.new_key(account)
    for reply in FAILURES.values():
        # Each of them holds all of the credit, so one hold that stayed would refuse the next.
        upstream.default_reply = reply
        assert post_chat(service, api_key, CHAT).status in (400, 502)
        assert service.settled_balance_nanos(account) == 20_000
    upstream.default_reply, asked = Reply(), len(upstream.requests)
    upstream.replies.append(Reply(stall_after=1))
    leaving = OpenChat(service, api_key, CHAT)
    wait_for_requests(upstream, asked + 1)
    leaving.leave()
    assert service.settled_balance_nanos(account) == 20_000
    assert post_chat(service, api_key, CHAT).status == 200


def test_account_with_much_credit_is_held_like_any_other_new_api_5690(service: Service, upstream: Upstream) -> None:
    """There, who had enough was trusted, nothing was set aside, and many requests at once overdrew the account."""
    account = service.new_account("1000000")
    api_key = service.new_key(account)
    upstream.default_reply = Reply(stall_after=2)
    chats = [OpenChat(service, api_key, CHAT) for _ in range(10)]
    for chat in chats:
        chat.read_until(b'"Hello"')
    holds = service.holds(account)
    assert [hold.state for hold in holds] == ["held"] * 10
    assert service.balance(account).held_nanos == sum(hold.amount_nanos for hold in holds) > 10 * 4_096 * 210
    for chat in chats:
        chat.leave()


@pytest.mark.parametrize(
    ("path", "status"),
    [("chat/completions", 402), ("responses", 402), ("messages", 402), ("completions", 404), ("embeddings", 404)],
)
def test_no_route_leads_past_the_credit_bifrost_2873(
    service: Service, upstream: Upstream, path: str, status: int
) -> None:
    api_key = service.new_key(service.new_account("0"))
    said = {"input": "Hi"} if path == "responses" else {"messages": [{"role": "user", "content": "Hi"}]}
    body = {"model": "mezzo", "max_tokens": 50, **said}
    assert ask(service, "POST", f"/v1/{path}", api_key, json.dumps(body).encode()).status == status
    assert upstream.requests == []
