"""Failures of a server that keeps to Anthropic's rules, over a real socket."""

import pytest

from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Failure, ProviderCall
from tests.services.router.providers.asking import CALL, both_ways, failure_of
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, error


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
        (400, "invalid_request_error", "You have reached your specified API usage limits.", Failure.PROVIDER),
        (400, "invalid_request_error", "The organization's spend limit is reached.", Failure.PROVIDER),
        # A client may call its function so, or a field of it.
        (400, "invalid_request_error", "tools.0.custom.name: 'set_spend_limit', 'spend limit'", Failure.REFUSED),
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
    call: ProviderCall,
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
