"""Every way in which a chat can end, as the page about billing lists them: what the client sees, what is charged, and
on which basis."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from services.chassis.money import parse_usd
from tests.e2e.chats import CHAT, QUESTION, RAIN, USAGE, WHOLE_CHAT
from tests.e2e.raw_http import Answer, OpenChat, post_chat
from tests.e2e.rules import NONE, Rule, check_books, read_rules, usage_to_charge
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream
from tests.support.waiting import wait_until

RULES = read_rules("What happened")

# A provider that falls silent, and an answer that does not end, are given up after a moment; by a service each, because
# on a machine that stalls the first would give up the other's answer before its time is over.
HASTY = {"LEGATO_UPSTREAM_FIRST_BYTE_S": "1", "LEGATO_UPSTREAM_IDLE_S": "1"}
SHORT_LIVED = {"LEGATO_STREAM_LIFE_S": "3"}

BEGINNING = '{"choices":[{"delta":{"content":"It rains"}}]}'
LITTLE = "0.0001"


class Case(NamedTuple):
    """The upstream's answer, and what else makes it end like this."""

    reply: Reply
    # The client leaves when it has read this; None: it stays.
    leaves_after: bytes | None = None
    chat: dict[str, Any] = CHAT
    credits: str = "5.00"
    # The fixture that is asked.
    asked: str = "service"


CASES = {
    "Complete": Case(Reply(contents=RAIN, usage=USAGE)),
    "Complete, usage missing": Case(Reply(contents=RAIN, usage=None)),
    "Complete, usage partial": Case(Reply(contents=RAIN, usage={"prompt_tokens": 11})),
    "Complete, usage zero": Case(Reply(contents=RAIN, usage={"prompt_tokens": 0, "completion_tokens": 0})),
    "Complete, usage impossible": Case(Reply(contents=RAIN, usage={"prompt_tokens": -1, "completion_tokens": 10**12})),
    "Complete, usage beyond what the model was allowed": Case(
        Reply(contents=RAIN, usage={"prompt_tokens": 900_000_000, "completion_tokens": 131_072})
    ),
    "Complete, usage larger than the hold": Case(Reply(contents=RAIN, usage={**USAGE, "completion_tokens": 10_000})),
    "Complete, usage larger than the credit": Case(
        Reply(contents=RAIN, usage={**USAGE, "completion_tokens": 10_000}), credits=LITTLE
    ),
    "Complete and empty": Case(Reply(contents=[], usage={**USAGE, "completion_tokens": 0})),
    "Client gone before the first token": Case(Reply(stall_after=1), leaves_after=b""),
    "Client gone in mid-stream": Case(Reply(contents=RAIN, stall_after=3), leaves_after=b'" rains"'),
    "Client gone after the last token": Case(Reply(contents=RAIN, stall_after=4), leaves_after=b'"."'),
    "Client gone after the end": Case(Reply(contents=RAIN, usage=USAGE), leaves_after=b"[DONE]"),
    "Client gone before a whole answer": Case(Reply(contents=RAIN, stall_after=3), leaves_after=b"", chat=WHOLE_CHAT),
    "Upstream cut before the first token": Case(Reply(cut_after=1)),
    "Upstream stalled before the first token": Case(Reply(delay_s=600), asked="hasty_service"),
    "Upstream garbage before the first token": Case(Reply(writes=["data: {{{\n\n"])),
    "Upstream error before the first token": Case(Reply(status=500)),
    "Upstream cut in mid-stream": Case(Reply(contents=RAIN, cut_after=3)),
    "Upstream stalled in mid-stream": Case(Reply(contents=RAIN, stall_after=3), asked="hasty_service"),
    "Upstream garbage in mid-stream": Case(Reply(events=[BEGINNING, "{{{"])),
    "Upstream error in mid-stream": Case(Reply(events=[BEGINNING, '{"error":{"message":"out of order"}}'])),
    "Upstream cut in a whole answer": Case(Reply(contents=RAIN, cut_after=3), chat=WHOLE_CHAT),
    "Prompt too long for the model": Case(Reply(status=400, body=TOO_LONG)),
    "Credit spent by the answer": Case(Reply(contents=[" rain"], repeat=2_000, event_delay_s=0.001), credits=LITTLE),
    "Answer goes on beyond `max_tokens`": Case(
        Reply(contents=[" rain"], repeat=6_000), chat={**CHAT, "max_tokens": 10}
    ),
    "Time of an answer over": Case(
        Reply(contents=[" rain"], repeat=100, event_delay_s=0.1), asked="short_lived_service"
    ),
    "Time of an answer over before the first token": Case(Reply(contents=RAIN, delay_s=4), asked="short_lived_service"),
    "No credit": Case(Reply(), credits="0"),
}
HELD = "Credit held by running requests"
# Goes on until it is ended.
ENDLESS = Reply(contents=[" rain"], repeat=10_000, event_delay_s=0.05)


@pytest.fixture(scope="module")
def hasty_service(shared_upstream: Upstream) -> Iterator[Service]:
    with Service(shared_upstream, HASTY) as service:
        yield service


@pytest.fixture(scope="module")
def short_lived_service(shared_upstream: Upstream) -> Iterator[Service]:
    with Service(shared_upstream, SHORT_LIVED) as service:
        yield service


@pytest.fixture(scope="module")
def prompt_tokens(service: Service, shared_upstream: Upstream) -> int:
    """Tokens of the question and all before it, counted by us."""
    shared_upstream.replies.append(Reply(usage=None))
    answer = post_chat(service, service.new_key(service.new_account()), {"model": "mezzo", "messages": QUESTION})
    return int(answer.json["usage"]["prompt_tokens"])


@pytest.mark.parametrize("what", CASES)
def test_end(request: pytest.FixtureRequest, prompt_tokens: int, upstream: Upstream, what: str) -> None:
    rule, case = RULES[what], CASES[what]
    service: Service = request.getfixturevalue(case.asked)
    account = service.new_account(case.credits)
    api_key = service.new_key(account)
    upstream.default_reply = case.reply
    if case.leaves_after is None:
        delivered = text_seen(rule, post_chat(service, api_key, case.chat))
    else:
        delivered = text_read(service, api_key, upstream, case)
        assert (rule.seen == NONE) == (delivered == "")
    max_tokens = case.chat.get("max_tokens", 0)
    usage = usage_to_charge(rule, case.reply.usage or {}, prompt_tokens, delivered, max_tokens)
    check_books(service, account, parse_usd(case.credits), rule, usage)
    assert service.audit() == []


def test_end_of_a_request_whose_credit_is_held(service: Service, upstream: Upstream) -> None:
    account = service.new_account("0.00002")
    api_key = service.new_key(account)
    upstream.replies.append(Reply(contents=RAIN, stall_after=2))
    running = OpenChat(service, api_key, CHAT)
    running.read_until(b'"It"')
    assert text_seen(RULES[HELD], post_chat(service, api_key, CHAT)) == ""
    running.leave()
    service.settled_balance_nanos(account)
    [hold] = service.holds(account)
    assert hold.end == "client_gone"


@pytest.mark.parametrize("what", ["Key revoked in mid-stream", "Account suspended in mid-stream"])
def test_end_of_an_answer_whose_key_is_refused(
    service: Service, prompt_tokens: int, upstream: Upstream, what: str
) -> None:
    account = service.new_account()
    made = service.make_key(account)
    upstream.replies.append(ENDLESS)
    chat = OpenChat(service, made.api_key, CHAT)
    chat.read_until(b'" rain"')
    if what.startswith("Key"):
        service.legato("keys", "revoke", made.key.key_id)
    else:
        service.legato("accounts", "suspend", account)
    chat.read_until(b'data: {"error":')
    chat.leave()

    delivered = " rain" * chat.received.count(b'" rain"')
    check_books(
        service, account, parse_usd("5.00"), RULES[what], usage_to_charge(RULES[what], {}, prompt_tokens, delivered)
    )
    assert service.audit() == []


def test_end_of_a_request_whose_key_is_revoked_before_the_first_token(service: Service, upstream: Upstream) -> None:
    rule = RULES["Key revoked before the first token"]
    account = service.new_account()
    made = service.make_key(account)
    upstream.replies.append(Reply(contents=RAIN, delay_s=3))
    chat = OpenChat(service, made.api_key, CHAT)
    wait_for_requests(upstream)
    service.legato("keys", "revoke", made.key.key_id)
    chat.read_until(b"\r\n\r\n")
    chat.leave()

    assert chat.received.startswith(f"HTTP/1.1 {rule.seen}".encode())
    check_books(service, account, parse_usd("5.00"), rule, None)


def test_end_of_a_request_that_is_left_by_habit(service: Service, upstream: Upstream) -> None:
    rule = RULES["Client gone by habit before the first token"]
    account = service.new_account()
    api_key = service.new_key(account)
    chat = {**CHAT, "messages": [{"role": "user", "content": "word " * 12_000}]}
    upstream.replies.append(Reply(usage=None))
    counted = post_chat(service, service.new_key(service.new_account()), {**chat, "stream": False}).json["usage"]
    upstream.default_reply = Reply(first_event_delay_s=600)
    credit_nanos, timeout_s = parse_usd("5.00"), 0.05
    # Leaving before our router could say that the provider has the prompt is not charged: so once more then.
    while service.settled_balance_nanos(account) == credit_nanos and timeout_s < 20:
        leaving = OpenChat(service, api_key, chat)
        request = wait_for_requests(upstream, len(upstream.requests) + 1)
        time.sleep(timeout_s)
        leaving.leave()
        wait_until(request.ended.is_set)
        timeout_s *= 1.5
    *free, charged = sorted(service.holds(account), key=lambda hold: hold.charged_nanos)
    assert len(free) >= 3
    assert {(hold.state, hold.charged_nanos) for hold in free} == {("void", 0)}
    usage = usage_to_charge(rule, {}, counted["prompt_tokens"], "")
    assert (charged.end, charged.basis) == (rule.end, rule.basis)
    assert (charged.prompt_tokens, charged.completion_tokens) == usage
    assert service.audit() == []


@pytest.mark.parametrize(
    ("what", "limit"),
    [("Rate exceeded", "--requests-per-minute"), ("Too many requests at once", "--concurrent-requests")],
)
def test_end_of_a_request_beyond_a_limit(service: Service, upstream: Upstream, what: str, limit: str) -> None:
    account = service.new_account()
    service.legato("accounts", "set", account, limit, "1")
    api_key = service.new_key(account)
    upstream.replies.append(Reply(contents=RAIN, stall_after=2))
    running = OpenChat(service, api_key, CHAT)
    running.read_until(b'"It"')
    assert text_seen(RULES[what], post_chat(service, api_key, CHAT)) == ""
    running.leave()
    service.settled_balance_nanos(account)
    assert [hold.end for hold in service.holds(account)] == ["client_gone"]


def test_end_of_a_request_for_which_every_model_is_saturated(service: Service, upstream: Upstream) -> None:
    rule = RULES["Every model of the class saturated"]
    account = service.new_account()
    upstream.replies.append(Reply(status=429))

    assert text_seen(rule, post_chat(service, service.new_key(account), CHAT)) == ""
    check_books(service, account, parse_usd("5.00"), rule, None)


def text_seen(rule: Rule, answer: Answer) -> str:
    """The text that was delivered, in an answer that is what the rule says."""
    if rule.seen.isdigit():
        assert answer.status == int(rule.seen)
        assert answer.error["message"]
        return ""
    assert answer.status == 200
    if rule.seen == "a part, an error":
        *chunks, error = answer.events
        assert error["error"]["code"] == "upstream_error"
    else:
        *chunks, finish, counted, done = answer.events
        assert finish["choices"][0]["finish_reason"] == ("length" if "`length`" in rule.seen else "stop")
        assert counted["usage"]["prompt_tokens"] > 0
        assert done == "[DONE]"
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    whole = {"all of it": "It rains.", "an empty answer": "", "a part, an error": "It rains"}
    assert text == whole.get(rule.seen, " rain" * text.count("r"))
    return text


def text_read(service: Service, api_key: str, upstream: Upstream, case: Case) -> str:
    """The text that was delivered to a client before it left."""
    assert case.leaves_after is not None
    chat = OpenChat(service, api_key, case.chat)
    request = wait_for_requests(upstream)
    chat.read_until(case.leaves_after)
    chat.leave()
    wait_until(request.ended.is_set)
    return "".join(word for word in RAIN if f'"{word}"'.encode() in chat.received)
