"""What it means that a provider said no."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from services.router.providers.base import Failure, Figures, ProviderError
from services.router.providers.errors.error_body import ErrorBody, read_error_body
from services.router.providers.errors.length_figures import read_figures
from services.router.providers.http.retry_after import read_retry_after

_REFUSED_STATUSES = (400, 422)
_TOO_LARGE = 413
# Too many requests, overloaded; the last two are those of single providers.
_BUSY_STATUSES = (429, 503, 498, 529)
# Where the status alone does not say what it means.
TELLING_STATUSES = (*_REFUSED_STATUSES, _TOO_LARGE, *_BUSY_STATUSES)


@dataclass(frozen=True, slots=True)
class ErrorPattern:
    """By what a provider says something that its status does not; all in small letters."""

    codes: frozenset[str]
    # Where it has no code for it. A message may quote the client, so this had better begin where the message does.
    message: re.Pattern[str]

    def is_in(self, error_body: ErrorBody) -> bool:
        return not self.codes.isdisjoint(error_body.codes) or self.message.search(error_body.message) is not None


@dataclass(frozen=True, slots=True)
class ErrorPatterns:
    # The prompt is too long.
    context: ErrorPattern
    # Our own account with it is empty, or our key is wrong: nobody who waits or shortens his prompt can help that.
    account: ErrorPattern


def read_failure(status: int, headers: Mapping[str, str], said: bytes, error_patterns: ErrorPatterns) -> ProviderError:
    """`said` is what came with one of the telling statuses. It may quote the conversation, so it goes no further."""
    what = f"answered with status {status}"
    error_body = read_error_body(said)
    failure, retry_after_s = _meaning(status, headers, error_body, error_patterns)
    return ProviderError(what, failure, status, retry_after_s, _figures(failure, error_body, error_patterns, said))


def read_failure_in_answer(status: int, said: bytes, error_patterns: ErrorPatterns) -> ProviderError:
    """An error where an answer should be, under a status that promised one; `status` is what it amounts to."""
    error_body = read_error_body(said)
    if error_patterns.context.is_in(error_body):
        status = _TOO_LARGE
    failure, retry_after_s = _meaning(status, {}, error_body, error_patterns)
    figures = _figures(failure, error_body, error_patterns, said)
    return ProviderError("reported an error in place of an answer", failure, None, retry_after_s, figures)


def _figures(failure: Failure, error_body: ErrorBody, error_patterns: ErrorPatterns, said: bytes) -> Figures | None:
    """A body that is too large, of which nothing but the status tells, is so whatever the limit on its answer."""
    if failure is not Failure.CONTEXT or not error_patterns.context.is_in(error_body):
        return None
    return read_figures(error_body.message, said)


def _meaning(
    status: int, headers: Mapping[str, str], error_body: ErrorBody, error_patterns: ErrorPatterns
) -> tuple[Failure, float | None]:
    if status not in TELLING_STATUSES:
        return Failure.PROVIDER, None
    if status in _BUSY_STATUSES and error_body.retry_after_s is not None:
        # Google speaks of plan and billing also where the minute's requests are spent; but then it says until when.
        header_s = read_retry_after(headers)
        return Failure.BUSY, error_body.retry_after_s if header_s is None else header_s
    if error_patterns.account.is_in(error_body):
        return Failure.PROVIDER, None
    if status in _BUSY_STATUSES:
        return Failure.BUSY, read_retry_after(headers)
    if status == _TOO_LARGE or error_patterns.context.is_in(error_body):
        return Failure.CONTEXT, None
    return Failure.REFUSED, None
