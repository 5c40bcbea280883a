"""Classifies the errors of providers."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from services.router.prompts.fitting import Figures
from services.router.providers.base import Failure, ProviderError
from services.router.providers.errors.error_body import ErrorBody, read_error_body
from services.router.providers.errors.length_figures import read_figures
from services.router.providers.errors.refusal_cause import find_cause
from services.router.schema.parameters import STEERING


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the delay in seconds; None if it is missing or invalid."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        seconds = _seconds_in(value, unit_s)
        if seconds is not None:
            return max(0.0, seconds)
    return None


def _seconds_in(value: str, unit_s: float) -> float | None:
    try:
        seconds = float(value) * unit_s
    except ValueError:
        return _seconds_until(value)
    return seconds if math.isfinite(seconds) else None


def _seconds_until(value: str) -> float | None:
    """Returns the seconds until an HTTP date."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):
        # Not a date, or out of range.
        return None


_REFUSED_STATUSES = (400, 422)
# OpenRouter's status of a prompt that its moderation flags; elsewhere our key is not permitted.
_FORBIDDEN = 403
_TOO_LARGE = 413
# Too many requests and overloaded; the last two are specific to single providers.
_BUSY_STATUSES = (429, 503, 498, 529)
# Statuses whose meaning depends on the body.
READ_BODY_STATUSES = (*_REFUSED_STATUSES, _FORBIDDEN, _TOO_LARGE, *_BUSY_STATUSES)


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """Identifies an error that the status does not, by code or message in lower case."""

    codes: frozenset[str]
    # For errors without a code. A message may quote the client, so the pattern should be anchored at its start.
    message: re.Pattern[str]

    def is_in(self, error_body: ErrorBody) -> bool:
        return not self.codes.isdisjoint(error_body.codes) or self.message.search(error_body.message) is not None


# The codes of OpenAI, Azure, OpenRouter and Alibaba for content that their policy does not allow.
_POLICY_CODES = ("content_policy_violation", "content_filter", "responsibleaipolicyviolation", "invalid_prompt")
# OpenAI's sentence where only that is forwarded, DeepSeek's, and Anthropic's.
_POLICY_MESSAGE = r"^(invalid prompt: your prompt was flagged|content exists risk$|output blocked by content filtering)"


@dataclass(frozen=True, slots=True)
class ErrorPatterns:
    # The prompt is too long.
    context: ErrorPattern
    # Our account is out of credit, or our key is wrong: neither waiting nor a shorter prompt helps.
    account: ErrorPattern
    # The content is not allowed by the provider's policy.
    policy: ErrorPattern = ErrorPattern(
        frozenset((*_POLICY_CODES, "data_inspection_failed")), re.compile(_POLICY_MESSAGE)
    )


def read_failure(
    status: int, body: bytes, error_patterns: ErrorPatterns, headers: Mapping[str, str] | None = None
) -> ProviderError:
    """Classifies an error response, or an error sent in place of an answer under status 200, which has no headers;
    `status` is its equivalent then. The `body` may quote the conversation, so it is not passed on."""
    error_body, is_in_answer = read_error_body(body), headers is None
    if is_in_answer and error_patterns.context.is_in(error_body):
        status = _TOO_LARGE
    elif is_in_answer and error_patterns.policy.is_in(error_body):
        status = _FORBIDDEN
    failure, retry_after_s = _meaning(status, headers or {}, error_body, error_patterns)
    figures = _figures(failure, error_body, error_patterns, body)
    what = "reported an error in place of an answer" if is_in_answer else f"answered with status {status}"
    http_status = None if is_in_answer else status
    if failure is not Failure.REFUSED:
        return ProviderError(what, failure, http_status, retry_after_s, figures)
    cause = find_cause(error_body.message)
    if cause is not None:
        what += f" ({cause.sentence.id})"
    return ProviderError(
        what, failure, http_status, retry_after_s, mentions=_mentions(body), param=error_body.param, cause=cause
    )


def _mentions(body: bytes) -> frozenset[str]:
    """Returns the parameters that a refusal mentions. The message may quote the client, so this affects its own chat
    alone."""
    return frozenset(name for name in STEERING if name.encode() in body)


def _figures(failure: Failure, error_body: ErrorBody, error_patterns: ErrorPatterns, body: bytes) -> Figures | None:
    """Reads the length figures. A 413 with no message about length does not depend on the output limit."""
    if failure is not Failure.CONTEXT or not error_patterns.context.is_in(error_body):
        return None
    return read_figures(error_body.message, body)


def _meaning(
    status: int, headers: Mapping[str, str], error_body: ErrorBody, error_patterns: ErrorPatterns
) -> tuple[Failure, float | None]:
    if status not in READ_BODY_STATUSES:
        return Failure.PROVIDER, None
    if status in _BUSY_STATUSES and error_body.retry_after_s is not None:
        # Google mentions plan and billing also for a rate limit per minute, but then it sends a retry delay.
        header_s = read_retry_after(headers)
        return Failure.BUSY, error_body.retry_after_s if header_s is None else header_s
    if status not in _BUSY_STATUSES and error_patterns.policy.is_in(error_body):
        return Failure.POLICY, None
    if status == _FORBIDDEN or error_patterns.account.is_in(error_body):
        return Failure.PROVIDER, None
    if status in _BUSY_STATUSES:
        return Failure.BUSY, read_retry_after(headers)
    if status == _TOO_LARGE or error_patterns.context.is_in(error_body):
        return Failure.CONTEXT, None
    return Failure.REFUSED, None
