"""Each error of the documented table, as the official client raises it."""

from collections.abc import Callable

import openai
import pytest

from tests.e2e.chats import CHAT, QUESTION
from tests.e2e.raw_http import post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import TOO_LONG, Reply, Upstream


def _check(
    error: openai.APIStatusError, status: int, kind: str, *, code: str | None = None, param: str | None = None
) -> None:
    assert error.status_code == status
    assert (error.type, error.code, error.param) == (kind, code, param)
    assert error.request_id is not None
    assert len(error.request_id) == 32
    assert isinstance(error.body, dict)
    assert error.body["message"]


def test_empty_messages_400(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="mezzo", messages=[])
    _check(raised.value, 400, "invalid_request_error", param="messages")


@pytest.mark.parametrize("model", ["piano", "gpt-4o", ""])
def test_unknown_model_400(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model=model, messages=QUESTION)
    _check(raised.value, 400, "invalid_request_error", code="model_not_found", param="model")
    assert "auto, mezzo, forte, fortissimo" in raised.value.message


@pytest.mark.parametrize(
    ("param", "ask"),
    [
        ("n", lambda client: client.chat.completions.create(model="mezzo", messages=QUESTION, n=2)),
        ("logprobs", lambda client: client.chat.completions.create(model="mezzo", messages=QUESTION, logprobs=True)),
    ],
)
def test_what_is_not_offered_400(client: openai.OpenAI, param: str, ask: Callable[[openai.OpenAI], object]) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client)
    _check(raised.value, 400, "invalid_request_error", param=param)


def test_too_long_a_prompt_400(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(status=400, body=TOO_LONG))
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    _check(raised.value, 400, "invalid_request_error", code="context_length_exceeded", param="messages")


def test_no_such_key_401(service: Service) -> None:
    with (
        openai.OpenAI(base_url=service.base_url, api_key="sk-unknown", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError) as raised,
    ):
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    _check(raised.value, 401, "authentication_error", code="invalid_api_key")


def test_no_credit_402(service: Service) -> None:
    api_key = service.new_key(service.new_account(credits="0"))
    with (
        openai.OpenAI(base_url=service.base_url, api_key=api_key, max_retries=0) as client,
        pytest.raises(openai.APIStatusError) as raised,
    ):
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    _check(raised.value, 402, "insufficient_quota", code="insufficient_quota")
    assert raised.value.response.headers["x-should-retry"] == "false"


def test_scope_missing_403(service: Service, account: str) -> None:
    api_key = service.new_key(account, ["models"])
    with (
        openai.OpenAI(base_url=service.base_url, api_key=api_key, max_retries=0) as client,
        pytest.raises(openai.PermissionDeniedError) as raised,
    ):
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    _check(raised.value, 403, "permission_error", code="missing_scope")


def test_not_offered_404(client: openai.OpenAI) -> None:
    for create, asked in (
        (client.embeddings.create, {"input": "text"}),
        (client.completions.create, {"prompt": "text"}),
    ):
        with pytest.raises(openai.NotFoundError) as raised:
            create(model="mezzo", **asked)
        _check(raised.value, 404, "invalid_request_error", code="endpoint_not_offered")


def test_too_many_requests_429(service: Service, client: openai.OpenAI, account: str) -> None:
    service.legato("accounts", "set", account, "--requests-per-minute", "1")
    client.chat.completions.create(model="mezzo", messages=QUESTION)
    with pytest.raises(openai.RateLimitError) as raised:
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    _check(raised.value, 429, "rate_limit_error", code="rate_limit_exceeded")
    assert 1 <= int(raised.value.response.headers["retry-after"]) <= 60
    assert raised.value.response.headers["x-ratelimit-limit-requests"] == "1"
    assert raised.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_every_answer_to_a_chat_tells_what_is_left_of_the_rates(service: Service, upstream: Upstream) -> None:
    account = service.new_account()
    asked = {
        200: (service.new_key(account), CHAT),
        400: (service.new_key(account), {}),
        401: ("sk-legato-unknown", CHAT),
        402: (service.new_key(service.new_account(credits="0")), CHAT),
        403: (service.new_key(account, ["usage"]), CHAT),
    }
    for status, (api_key, body) in asked.items():
        answer = post_chat(service, api_key, body)
        assert answer.status == status
        told = {name for name in answer.headers if name.startswith("x-ratelimit-")}
        assert told == {
            f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
        }
    # Who was refused has used nothing up.
    refused = post_chat(service, asked[403][0], CHAT)
    assert refused.headers["x-ratelimit-remaining-requests"] == "200"


def test_credit_held_by_running_requests_429(service: Service, upstream: Upstream) -> None:
    # Enough for one chat of a token, and all of it is held while that one runs.
    account = service.new_account(credits="0.00002")
    upstream.replies.append(Reply(stall_after=2))
    with openai.OpenAI(base_url=service.base_url, api_key=service.new_key(account), max_retries=0) as client:
        running = client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
        next(running)
        with pytest.raises(openai.RateLimitError) as raised:
            client.chat.completions.create(model="mezzo", messages=QUESTION)
        running.close()
    _check(raised.value, 429, "rate_limit_error", code="credits_held")
    assert int(raised.value.response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_error_502(client: openai.OpenAI, upstream: Upstream, stream: bool) -> None:
    upstream.default_reply = Reply(status=500, body='{"error":"out of order"}')
    with pytest.raises(openai.InternalServerError) as raised:
        client.chat.completions.create(model="mezzo", messages=QUESTION, stream=stream)
    _check(raised.value, 502, "api_error", code="upstream_error")
    assert "out of order" not in raised.value.message


def test_failure_in_mid_stream_is_raised(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains", "."], cut_after=3))
    stream = client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
    contents: list[str | None] = []
    with pytest.raises(openai.APIError) as raised:
        contents.extend(chunk.choices[0].delta.content for chunk in stream)
    assert contents == ["", "It", " rains"]
    assert (raised.value.type, raised.value.code) == ("api_error", "upstream_error")
