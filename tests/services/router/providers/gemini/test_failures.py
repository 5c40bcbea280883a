"""What goes wrong with a server that keeps to Google's rules, over a real socket."""

import asyncio

import pytest

from services.router.providers.base import Call, Failure
from services.router.providers.gemini import GeminiProvider
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
from tests.upstreams.gemini import GeminiReply, GeminiUpstream, error


@pytest.mark.parametrize("said", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"])
@both_ways
async def test_end_that_is_no_answer_is_a_failure(
    call: Call, said: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(contents=[], finish_reason=said))
    assert (await failure_of(provider, call)).failure is Failure.PROVIDER


RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13s"}]
NO_ROOM = "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("status", "kind", "message", "failure"),
    [
        (400, "INVALID_ARGUMENT", "canary", Failure.REFUSED),
        (400, "INVALID_ARGUMENT", NO_ROOM, Failure.CONTEXT),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", Failure.PROVIDER),
        (400, "FAILED_PRECONDITION", "User location is not supported.", Failure.PROVIDER),
        (401, "UNAUTHENTICATED", "", Failure.PROVIDER),
        (402, "RESOURCE_EXHAUSTED", "", Failure.PROVIDER),
        (403, "PERMISSION_DENIED", "", Failure.PROVIDER),
        (404, "NOT_FOUND", "", Failure.PROVIDER),
        (429, "RESOURCE_EXHAUSTED", "", Failure.BUSY),
        (499, "CANCELLED", "", Failure.PROVIDER),
        (500, "INTERNAL", "canary", Failure.PROVIDER),
        (503, "UNAVAILABLE", "", Failure.BUSY),
        (504, "DEADLINE_EXCEEDED", "", Failure.PROVIDER),
    ],
)
@both_ways
async def test_status_tells_what_the_failure_means(
    call: Call,
    status: int,
    kind: str,
    message: str,
    failure: Failure,
    upstream: GeminiUpstream,
    provider: GeminiProvider,
) -> None:
    upstream.replies.append(error(status, kind, message, RETRY_INFO))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.http_status) == (failure, status)
    assert failed.retry_after_s == (13 if failure is Failure.BUSY else None)
    assert "canary" not in str(failed)


IN_STREAM = '{"error":{"code":%d,"message":"canary","status":"X"}}'
BEGUN = '{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}'


@pytest.mark.parametrize("form", ["%s", "[%s]"])
@pytest.mark.parametrize(
    ("status", "failure"), [(503, Failure.BUSY), (429, Failure.BUSY), (500, Failure.PROVIDER), (400, Failure.REFUSED)]
)
async def test_error_as_the_first_event_means_what_its_status_would(
    status: int, failure: Failure, form: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(events=[form % (IN_STREAM % status)]))
    failed = await failure_of(provider, CALL)
    assert failed.failure is failure
    assert "canary" not in str(failed)


BREAKS = {
    "error event": GeminiReply(events=[BEGUN, IN_STREAM % 503]),
    "error without data": GeminiReply(writes=[f"data: {BEGUN}\r\n\r\n", IN_STREAM % 503 + "\r\n"]),
    "no reason": GeminiReply(finish_reason=None),
    "call that went wrong": GeminiReply(finish_reason="MALFORMED_FUNCTION_CALL"),
    "cut": GeminiReply(cut_after=2, event_delay_s=0.01),
    "garbage": GeminiReply(events=[BEGUN, "<html>"]),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    name: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(BREAKS[name])
    pieces, failure = await broken_off(provider, CALL)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


@pytest.mark.parametrize("body", ["<html>", "{}", "[]", IN_STREAM % 500, f"[{IN_STREAM % 500}]"])
async def test_answer_in_one_piece_that_is_none_fails(
    body: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(body=body))
    assert "canary" not in str(await failure_of(provider, WHOLE_CALL))


async def test_silence_is_a_failure_and_closes_the_connection(upstream: GeminiUpstream) -> None:
    provider = GeminiProvider(upstream.base_url, QUICK, api_key="secret", version="v1")
    upstream.replies.append(GeminiReply(stall_after=2))
    assert (await failure_of(provider, CALL)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted
    await provider.aclose()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (WHOLE_CALL, GeminiReply(delay_s=60)),
        (CALL, GeminiReply(delay_s=60)),
        (CALL, GeminiReply(first_event_delay_s=60)),
        (CALL, GeminiReply(stall_after=2)),
    ],
)
async def test_cancelling_closes_the_connection(
    call: Call, reply: GeminiReply, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(reply)
    reading = asyncio.create_task(pieces_of(provider, call))
    request = await upstream.received()
    await asyncio.sleep(0.05)
    reading.cancel()
    async with asyncio.timeout(10):
        await request.ended.wait()
    assert request.aborted
