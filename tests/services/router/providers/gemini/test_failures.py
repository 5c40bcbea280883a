"""Failures of a server that keeps to Google's rules, over a real socket."""

import pytest

from services.router.providers.base import Failure, ProviderCall
from services.router.providers.gemini.provider import GeminiProvider
from tests.services.router.providers.asking import CALL, both_ways, failure_of
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream, error


@pytest.mark.parametrize("said", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"])
@both_ways
async def test_end_that_is_no_answer_is_a_failure(
    call: ProviderCall, said: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(contents=[], finish_reason=said))
    assert (await failure_of(provider, call)).failure is Failure.PROVIDER


RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13s"}]
NO_ROOM = "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576)."

# It says so of a minute's requests, and of all that is paid for.
NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "kind", "message", "failure"),
    [
        (400, "INVALID_ARGUMENT", "canary", Failure.REFUSED),
        (400, "INVALID_ARGUMENT", NO_ROOM, Failure.CONTEXT),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", Failure.PROVIDER),
        # A client may call its function so, or a field of it.
        (400, "INVALID_ARGUMENT", 'Unknown name "x" at tools[0] (get_billing_address)', Failure.REFUSED),
        (400, "INVALID_ARGUMENT", "* parameters.properties[billing].items: missing field.", Failure.REFUSED),
        (400, "FAILED_PRECONDITION", "User location is not supported.", Failure.PROVIDER),
        (401, "UNAUTHENTICATED", "", Failure.PROVIDER),
        (402, "RESOURCE_EXHAUSTED", "", Failure.PROVIDER),
        (403, "PERMISSION_DENIED", "", Failure.PROVIDER),
        (404, "NOT_FOUND", "", Failure.PROVIDER),
        (429, "RESOURCE_EXHAUSTED", "", Failure.BUSY),
        (429, "RESOURCE_EXHAUSTED", NO_QUOTA, Failure.BUSY),
        (499, "CANCELLED", "", Failure.PROVIDER),
        (500, "INTERNAL", "canary", Failure.PROVIDER),
        (503, "UNAVAILABLE", "", Failure.BUSY),
        (504, "DEADLINE_EXCEEDED", "", Failure.PROVIDER),
    ],
)
@both_ways
async def test_status_tells_what_the_failure_means(
    call: ProviderCall,
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


@pytest.mark.parametrize("message", [NO_QUOTA, "Your prepayment credits are depleted."])
async def test_quota_that_does_not_come_back_by_itself_is_our_own_account_s(
    message: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(
        error(429, "RESOURCE_EXHAUSTED", message, [{"@type": "type.googleapis.com/google.rpc.Help"}])
    )
    assert (await failure_of(provider)).failure is Failure.PROVIDER


async def test_key_that_is_wrong_is_told_by_its_code(upstream: GeminiUpstream, provider: GeminiProvider) -> None:
    upstream.replies.append(error(400, "INVALID_ARGUMENT", "canary", [{"reason": "API_KEY_INVALID"}]))
    assert (await failure_of(provider)).failure is Failure.PROVIDER


IN_STREAM = '{"error":{"code":%d,"message":"canary","status":"X"}}'


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
