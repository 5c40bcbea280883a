"""Idempotency-Key: a request that its client named is served once, and charged once."""

import secrets
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import Answer, OpenChat, post_chat
from tests.support.service import Service, wait_for_requests
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import wait_until

CREDIT_NANOS = 5 * 10**9
COST_NANOS = 11 * 100 + 7 * 210

BODY: dict[str, Any] = {"model": "mezzo", "messages": QUESTION}
STREAMED = {**BODY, "stream": True}


@pytest.fixture
def key() -> dict[str, str]:
    return {"Idempotency-Key": f"order {secrets.token_hex(8)}"}


class PatientClient(openai.OpenAI):  # type: ignore[misc]
    """Asks again where that may help, and counts how often it asks."""

    def __init__(self, service: Service, api_key: str) -> None:
        self.asked = 0
        http_client = openai.DefaultHttpxClient(event_hooks={"request": [self._count]})
        super().__init__(base_url=service.base_url, api_key=api_key, max_retries=2, http_client=http_client)

    def _count(self, request: object) -> None:
        self.asked += 1


@pytest.fixture
def patient_client(service: Service, upstream: Upstream, api_key: str) -> Iterator[PatientClient]:
    with PatientClient(service, api_key) as client:
        yield client


def assert_repeat_of(first: Answer | OpenChat, repeat: Answer) -> None:
    assert repeat.status == 409
    assert repeat.headers["x-should-retry"] == "false"
    assert repeat.headers["x-original-request-id"] == request_id_of(first)
    assert repeat.headers["x-request-id"] != request_id_of(first)
    assert repeat.error["type"] == "invalid_request_error"
    assert repeat.error["code"] == "request_already_processed"
    assert request_id_of(first) in repeat.error["message"]


def request_id_of(first: Answer | OpenChat) -> str:
    if isinstance(first, Answer):
        return first.headers["x-request-id"]
    return first.received.partition(b"x-request-id: ")[2][:32].decode()


@pytest.mark.parametrize("body", [BODY, STREAMED], ids=["whole", "streamed"])
def test_repeat_of_what_was_answered_is_refused_and_charged_once(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str], body: dict[str, Any]
) -> None:
    first = post_chat(service, api_key, body, key)
    assert first.status == 200
    for _ in range(2):
        assert_repeat_of(first, post_chat(service, api_key, body, key))
    assert len(upstream.requests) == 1
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - COST_NANOS
    assert_repeat_of(first, post_chat(service, api_key, body, key))
    [row] = service.usage(account)
    assert row.requests == 1


def test_repeat_is_refused_while_the_first_still_runs(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str]
) -> None:
    upstream.replies.append(Reply(contents=["It rains"], stall_after=2))
    first = OpenChat(service, api_key, STREAMED, key)
    first.read_until(b"It rains")
    assert_repeat_of(first, post_chat(service, api_key, STREAMED, key))
    first.leave()
    # It said something before its client left, so it stays the one that has the key.
    service.settled_balance_nanos(account)
    assert_repeat_of(first, post_chat(service, api_key, STREAMED, key))
    assert len(upstream.requests) == 1
    [row] = service.usage(account)
    assert row.requests == 1


def test_refusal_for_want_of_credit_frees_the_key(service: Service, upstream: Upstream, key: dict[str, str]) -> None:
    account = service.new_account("0.00")
    api_key = service.new_key(account)
    assert post_chat(service, api_key, BODY, key).status == 402
    service.legato("credits", "grant", account, "1.00")
    assert post_chat(service, api_key, BODY, key).status == 200


@pytest.mark.parametrize("body", [BODY, STREAMED], ids=["whole", "streamed"])
def test_failure_before_the_first_byte_frees_the_key_at_once(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str], body: dict[str, Any]
) -> None:
    failure = {**body, "model": "fortissimo"}
    # The only model is asked twice for each.
    upstream.replies += [Reply(status=500, body="{}")] * 4
    for expected in (502, 502, 200):
        assert post_chat(service, api_key, failure, key).status == expected
    assert post_chat(service, api_key, failure, key).status == 409
    assert len(upstream.requests) == 5


def test_failure_in_mid_stream_keeps_the_key(
    service: Service, upstream: Upstream, api_key: str, key: dict[str, str]
) -> None:
    upstream.replies.append(Reply(contents=["It", " rains", "."], cut_after=3))
    first = post_chat(service, api_key, STREAMED, key)
    assert first.events[-1].keys() == {"error"}
    assert_repeat_of(first, post_chat(service, api_key, STREAMED, key))


def test_client_who_left_before_the_first_token_may_ask_again(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str]
) -> None:
    upstream.replies.append(Reply(first_event_delay_s=600))
    first = OpenChat(service, api_key, STREAMED, key)
    wait_for_requests(upstream)
    assert post_chat(service, api_key, STREAMED, key).status == 409
    first.leave()
    wait_until(lambda: post_chat(service, api_key, STREAMED, key).status == 200)
    assert len(upstream.requests) == 2
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - COST_NANOS


def test_another_body_under_the_same_key_is_refused_in_clear_words(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str]
) -> None:
    assert post_chat(service, api_key, BODY, key).status == 200
    other = post_chat(service, api_key, {**BODY, "temperature": 0.5}, key)
    assert other.status == 400
    assert other.headers["x-should-retry"] == "false"
    assert "x-original-request-id" not in other.headers
    assert (other.error["code"], other.error["param"]) == ("idempotency_key_reused", "Idempotency-Key")
    assert len(upstream.requests) == 1
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - COST_NANOS


def test_key_counts_for_all_keys_of_its_account_and_for_no_other_account(
    service: Service, upstream: Upstream, account: str, api_key: str, key: dict[str, str]
) -> None:
    first = post_chat(service, api_key, BODY, key)
    assert_repeat_of(first, post_chat(service, service.new_key(account), BODY, key))
    assert post_chat(service, service.new_key(service.new_account()), BODY, key).status == 200


@pytest.mark.parametrize("value", ["", "x" * 256, "caf\u00e9"], ids=["empty", "too long", "not ASCII"])
def test_key_that_is_none_is_refused(service: Service, upstream: Upstream, api_key: str, value: str) -> None:
    answer = post_chat(service, api_key, BODY, {"Idempotency-Key": value})
    assert answer.status == 400
    assert answer.error["param"] == "Idempotency-Key"
    assert upstream.requests == []


def test_official_client_asks_once_and_is_told_of_the_first_request(
    service: Service, upstream: Upstream, account: str, patient_client: PatientClient, key: dict[str, str]
) -> None:
    answered = patient_client.chat.completions.with_raw_response.create(
        model="mezzo", messages=QUESTION, extra_headers=key
    )
    with pytest.raises(openai.ConflictError) as repeated:
        patient_client.chat.completions.create(model="mezzo", messages=QUESTION, extra_headers=key)
    assert repeated.value.code == "request_already_processed"
    assert repeated.value.response.headers["x-original-request-id"] == answered.headers["x-request-id"]
    assert patient_client.asked == 2
    with pytest.raises(openai.BadRequestError) as reused:
        patient_client.chat.completions.create(model="forte", messages=QUESTION, extra_headers=key)
    assert reused.value.code == "idempotency_key_reused"
    assert patient_client.asked == 3
    assert len(upstream.requests) == 1
    assert service.settled_balance_nanos(account) == CREDIT_NANOS - COST_NANOS


def test_official_client_s_own_retry_under_a_key_is_served_after_an_empty_failure(
    service: Service, upstream: Upstream, account: str, patient_client: PatientClient, key: dict[str, str]
) -> None:
    upstream.replies += [Reply(status=500, body="{}")] * 2
    answer = patient_client.chat.completions.create(model="fortissimo", messages=QUESTION, extra_headers=key)
    assert answer.choices[0].message.content == "Hello, world!"
    assert (patient_client.asked, len(upstream.requests)) == (2, 3)
    service.settled_balance_nanos(account)
    [row] = service.usage(account)
    assert row.requests == 1


def test_neither_key_nor_body_is_written_anywhere(service: Service, upstream: Upstream, account: str) -> None:
    name, said, other = (f"canary{secrets.token_hex(8)}" for _ in range(3))
    api_key, key = service.new_key(account), {"Idempotency-Key": name}
    bodies = [{**BODY, "messages": [{"role": "user", "content": word}]} for word in (said, said, other)]
    answers = [post_chat(service, api_key, body, key) for body in bodies]
    answers.append(post_chat(service, api_key, bodies[0], {"Idempotency-Key": f"{name}\u00e9"}))
    assert [answer.status for answer in answers] == [200, 409, 400, 400]
    service.settled_balance_nanos(account)
    everything = b"\n".join(path.read_bytes() for path in service.files())
    assert request_id_of(answers[0]).encode() in everything
    for word in (name, said, other):
        assert word.encode() not in everything
    assert not any(word.encode() in answer.body for answer in answers[1:] for word in (name, said, other))
