"""An upstream that fails, before its first byte and after it: what the client sees, and what it pays."""

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import ERROR_KEYS, post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

CREDIT_NANOS = 5 * 10**9

BEFORE_THE_FIRST_BYTE = {
    "error": Reply(status=500, body='{"error":{"message":"overloaded"}}'),
    "redirect": Reply(status=302, headers={"Location": "/elsewhere"}),
    "quota": Reply(status=429, body='{"error":{"code":"insufficient_quota"}}'),
    "not JSON": Reply(body="<html>It works!</html>", content_type="text/html"),
    "error in place of an answer": Reply(body='{"error":{"message":"no such model"}}'),
    "nothing": Reply(body=""),
    "cut": Reply(cut_after=0),
    "empty stream": Reply(events=[], done=False),
    "garbage": Reply(writes=["data: {{{\n\n"]),
    "error event": Reply(events=['{"error":{"message":"overloaded"}}']),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", BEFORE_THE_FIRST_BYTE)
def test_failure_before_the_first_byte_is_502_and_free(
    service: Service, upstream: Upstream, account: str, api_key: str, failure: str, stream: bool
) -> None:
    upstream.default_reply = BEFORE_THE_FIRST_BYTE[failure]
    # The class whose answers are streamed to us even when they are wanted whole.
    answer = post_chat(service, api_key, {"model": "fortissimo", "messages": QUESTION, "stream": stream})
    assert answer.status == 502
    assert answer.error["type"] == "api_error"
    assert service.settled_balance_nanos(account) == CREDIT_NANOS
    assert service.usage(account) == []


def test_request_that_the_model_does_not_accept_is_not_repeated_by_the_client(
    upstream: Upstream, client: openai.OpenAI
) -> None:
    upstream.default_reply = Reply(status=400, body='{"error":{"message":"bad schema"}}')
    with pytest.raises(openai.BadRequestError) as refused:
        client.with_options(max_retries=2).chat.completions.create(model="mezzo", messages=QUESTION)
    assert refused.value.code == "request_not_supported"
    assert len(upstream.requests) == 1


AFTER_IT = {
    "cut": Reply(contents=["It", " rains", "."], cut_after=3),
    "no end": Reply(contents=["It", " rains"], finish_reason=None, usage=None, done=False),
    "garbage": Reply(events=['{"choices":[{"delta":{"content":"It rains"}}]}', "{{{"], done=False),
    "error event": Reply(
        events=['{"choices":[{"delta":{"content":"It rains"}}]}', '{"error":{"message":"overloaded"}}']
    ),
}


@pytest.mark.parametrize("failure", AFTER_IT)
def test_failure_in_mid_stream_is_one_error_event_and_what_came_is_charged_eliza_9904(
    service: Service, upstream: Upstream, account: str, api_key: str, failure: str
) -> None:
    """There, a stream that failed never settled its hold."""
    upstream.default_reply = AFTER_IT[failure]
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": True})
    assert answer.status == 200
    *chunks, last = answer.events
    assert last.keys() == {"error"}
    assert last["error"].keys() == ERROR_KEYS
    assert last["error"]["type"] == "api_error"
    assert last["error"]["code"] == "upstream_error"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "It rains"
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    charged_nanos = CREDIT_NANOS - service.settled_balance_nanos(account)
    [row] = service.usage(account)
    assert row.usage.prompt_tokens > 0
    assert row.usage.completion_tokens == 2
    assert charged_nanos == 100 * row.usage.prompt_tokens + 210 * row.usage.completion_tokens


@pytest.mark.parametrize("failure", AFTER_IT)
def test_whole_answer_that_breaks_off_is_502_and_free(
    service: Service, upstream: Upstream, account: str, api_key: str, failure: str
) -> None:
    upstream.default_reply = AFTER_IT[failure]
    answer = post_chat(service, api_key, {"model": "fortissimo", "messages": QUESTION})
    assert answer.status == 502
    assert answer.error["type"] == "api_error"
    assert service.settled_balance_nanos(account) == CREDIT_NANOS
