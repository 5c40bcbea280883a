"""Failures of a server that speaks as OpenAI does, over a real socket."""

import msgspec
import pytest

from services.router.providers.base import Failure, ProviderCall, ProviderError
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import CALL, WHOLE_CALL, failure_of, opened
from tests.support.upstreams.openai import Reply, Upstream


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (CALL, Reply(events=["<html>"])),
        (CALL, Reply(events=['{"error":{"message":"overloaded"}}'])),
        (CALL, Reply(events=[], done=False)),
        (CALL, Reply(cut_after=0)),
        # Its role alone is nothing that a client could use.
        (CALL, Reply(cut_after=1)),
        (CALL, Reply(events=['{"choices":[{"delta":{"role":"assistant","content":""}}]}', '{"error":"overloaded"}'])),
        (CALL, Reply(body="<html>", content_type="text/html")),
        (WHOLE_CALL, Reply(body="<html>", content_type="text/html")),
    ],
)
async def test_failure_as_the_first_thing_gives_no_piece(
    call: ProviderCall, reply: Reply, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(reply)
    with pytest.raises(ProviderError):
        await anext(provider.answer(call))


def said(message: str) -> str:
    return msgspec.json.encode({"error": {"message": message, "type": "BadRequestError", "code": 400}}).decode()


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (400, '{"error":{"message":"canary"}}', Failure.REFUSED),
        (422, '{"detail":[]}', Failure.REFUSED),
        (400, '{"error":{"code":"context_length_exceeded"}}', Failure.CONTEXT),
        (400, '{"error":{"type":"exceed_context_size_error","n_ctx":8192}}', Failure.CONTEXT),
        (400, '{"error":{"message":"This model\'s maximum context length is 10"}}', Failure.CONTEXT),
        (400, said("The input (9 tokens) is longer than the model's context length (8 tokens)."), Failure.CONTEXT),
        (400, said("The decoder prompt (length 9) is longer than the maximum model length of 8."), Failure.CONTEXT),
        (422, '{"error":"`inputs` tokens + `max_new_tokens` must be <= 8. Given: 9"}', Failure.CONTEXT),
        (401, "", Failure.PROVIDER),
        (404, "", Failure.PROVIDER),
        (429, "", Failure.BUSY),
        (503, "canary", Failure.BUSY),
        (529, "", Failure.BUSY),
        # Of our own account with the provider: that does not pass by itself.
        (429, '{"error":{"code":"insufficient_quota"}}', Failure.PROVIDER),
        (429, said("OpenAIException - You exceeded your current quota, please check your plan."), Failure.PROVIDER),
        # A client may call its function so.
        (400, said("Invalid schema for function 'insufficient_quota'"), Failure.REFUSED),
        (500, "canary", Failure.PROVIDER),
        (302, "", Failure.PROVIDER),
    ],
)
async def test_status_tells_whether_another_provider_may_do_better(
    status: int, body: str, failure: Failure, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(status=status, body=body, headers={"Location": "/v1/chat/completions"}))
    error = await failure_of(provider)
    assert (error.failure, error.http_status) == (failure, status)
    assert "canary" not in str(error)
    assert len(upstream.requests) == 1


async def test_time_that_a_busy_provider_asks_for_is_told(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies += [Reply(status=429, headers={"Retry-After": "7"}), Reply(status=429)]
    assert [(await failure_of(provider)).retry_after_s for _ in range(2)] == [7, None]


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        ('{"error":{"message":"canary","code":503}}', Failure.BUSY),
        ('{"error":{"message":"canary","code":429}}', Failure.BUSY),
        ('{"error":{"message":"canary","code":500}}', Failure.PROVIDER),
        ('{"error":{"message":"canary","code":400}}', Failure.REFUSED),
        ('{"error":{"message":"canary","code":"server_error"}}', Failure.PROVIDER),
        ('{"error":{"message":"maximum context length is 10","code":null}}', Failure.CONTEXT),
        ('{"error":"canary"}', Failure.PROVIDER),
        ('{"object":"error","message":"canary","code":400}', Failure.REFUSED),
        ('{"choices":[],"x_groq":{"error":"canary"}}', Failure.PROVIDER),
    ],
)
@pytest.mark.parametrize("call", [CALL, WHOLE_CALL])
async def test_error_in_place_of_an_answer_means_what_its_status_would(
    call: ProviderCall, event: str, failure: Failure, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(events=[event]) if call.stream else Reply(body=event))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.what) == (failure, "reported an error in place of an answer")


async def test_server_that_is_not_there_is_a_failure() -> None:
    async with Upstream() as gone:
        address = gone.base_url
    provider = opened(OpenAIProvider, address, QUICK)
    assert (await failure_of(provider)).what == "could not be reached"
    await provider.aclose()
