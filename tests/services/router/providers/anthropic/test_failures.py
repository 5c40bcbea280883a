"""What goes wrong with a server that keeps to Anthropic's rules, over a real socket."""

import asyncio

import pytest

from services.router.providers.anthropic import VERSION_2026, AnthropicProvider
from services.router.providers.base import Call, Failure
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import (
    CALL,
    WHOLE_CALL,
    both_ways,
    broken_off,
    failure_of,
    pieces_of,
    text_of,
)
from tests.upstreams.anthropic import AnthropicReply, AnthropicUpstream, error


@pytest.mark.parametrize(
    ("status", "kind", "message", "failure"),
    [
        (400, "invalid_request_error", "canary", Failure.REFUSED),
        (400, "invalid_request_error", "prompt is too long: 207791 tokens > 200000 maximum", Failure.CONTEXT),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
            Failure.CONTEXT,
        ),
        (400, "invalid_request_error", "Your credit balance is too low", Failure.PROVIDER),
        (401, "authentication_error", "", Failure.PROVIDER),
        (402, "billing_error", "", Failure.PROVIDER),
        (403, "permission_error", "", Failure.PROVIDER),
        (404, "not_found_error", "", Failure.PROVIDER),
        (413, "request_too_large", "", Failure.CONTEXT),
        (429, "rate_limit_error", "", Failure.BUSY),
        (429, "enforced_spend_limit_reached", "", Failure.PROVIDER),
        (500, "api_error", "canary", Failure.PROVIDER),
        (503, "api_error", "", Failure.BUSY),
        (504, "timeout_error", "", Failure.PROVIDER),
        (529, "overloaded_error", "", Failure.BUSY),
    ],
)
@both_ways
async def test_status_tells_what_the_failure_means(
    call: Call,
    status: int,
    kind: str,
    message: str,
    failure: Failure,
    upstream: AnthropicUpstream,
    provider: AnthropicProvider,
) -> None:
    upstream.replies.append(error(status, kind, message, {"retry-after": "7"}))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.http_status) == (failure, status)
    assert failed.retry_after_s == (7 if failure is Failure.BUSY else None)
    assert "canary" not in str(failed)


IN_STREAM = '{"type":"error","error":{"type":"%s","message":"canary"}}'
BEGUN = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}'


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("overloaded_error", Failure.BUSY),
        ("rate_limit_error", Failure.BUSY),
        ("api_error", Failure.PROVIDER),
        ("timeout_error", Failure.PROVIDER),
        ("something_new", Failure.PROVIDER),
        ("invalid_request_error", Failure.REFUSED),
    ],
)
async def test_error_as_the_first_event_means_what_its_status_would(
    kind: str, failure: Failure, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(events=[IN_STREAM % kind]))
    failed = await failure_of(provider, CALL)
    assert failed.failure is failure
    assert "canary" not in str(failed)


BREAKS = {
    "error event": AnthropicReply(events=[BEGUN, IN_STREAM % "overloaded_error"]),
    "no stop reason": AnthropicReply(finish_reason=None),
    "no stop reason, no stop": AnthropicReply(finish_reason=None, done=False),
    "cut": AnthropicReply(cut_after=4, event_delay_s=0.01),
    "garbage": AnthropicReply(writes=[f"data: {BEGUN}\n\n", "data: <html>\n\n"]),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    name: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(BREAKS[name])
    pieces, failure = await broken_off(provider, CALL)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


@pytest.mark.parametrize("body", ["<html>", "{}", IN_STREAM % "api_error", '{"type":"message","content":[]}'])
async def test_answer_in_one_piece_that_is_none_fails(
    body: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(body=body))
    assert "canary" not in str(await failure_of(provider, WHOLE_CALL))


async def test_silence_is_a_failure_and_closes_the_connection(upstream: AnthropicUpstream) -> None:
    provider = AnthropicProvider(upstream.base_url, QUICK, api_key="secret", version=VERSION_2026)
    upstream.replies.append(AnthropicReply(stall_after=3))
    assert (await failure_of(provider, CALL)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted
    await provider.aclose()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (WHOLE_CALL, AnthropicReply(delay_s=60)),
        (CALL, AnthropicReply(delay_s=60)),
        (CALL, AnthropicReply(first_event_delay_s=60)),
        (CALL, AnthropicReply(stall_after=4)),
    ],
)
async def test_cancelling_closes_the_connection(
    call: Call, reply: AnthropicReply, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(reply)
    reading = asyncio.create_task(pieces_of(provider, call))
    request = await upstream.received()
    await asyncio.sleep(0.05)
    reading.cancel()
    async with asyncio.timeout(10):
        await request.ended.wait()
    assert request.aborted
