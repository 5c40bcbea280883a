"""What it means that a provider said no."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from services.router.providers.base import Failure, ProviderError
from services.router.providers.retry_after import read_retry_after

_REFUSED_STATUSES = (400, 422)
_TOO_LARGE = 413
# Too many requests, overloaded; the last two are those of single providers.
_BUSY_STATUSES = (429, 503, 498, 529)
# Where the status alone does not say what it means.
TELLING_STATUSES = (*_REFUSED_STATUSES, _TOO_LARGE, *_BUSY_STATUSES)

# Google says in the body when to come back.
_RETRY_DELAY = re.compile(rb'"retrydelay"\s*:\s*"([0-9]{1,6}(?:\.[0-9]+)?)s"')


@dataclass(frozen=True, slots=True)
class Signs:
    """The words, in small letters, by which a provider says what its status does not."""

    # The prompt is too long.
    context: tuple[bytes, ...]
    # Our own account with it is empty, or our key is wrong: nobody who waits or shortens his prompt can help that.
    account: tuple[bytes, ...]


def read_failure(status: int, headers: Mapping[str, str], said: bytes, signs: Signs) -> ProviderError:
    """`said` is what came with one of the telling statuses. It may quote the conversation, so it goes no further."""
    what = f"answered with status {status}"
    failure, retry_after_s = _meaning(status, headers, said.lower(), signs)
    return ProviderError(what, failure, status, retry_after_s)


def read_failure_in_answer(status: int, said: bytes, signs: Signs) -> ProviderError:
    """An error where an answer should be, under a status that promised one; `status` is what it amounts to."""
    said = said.lower()
    if _has(said, signs.context):
        status = _TOO_LARGE
    failure, retry_after_s = _meaning(status, {}, said, signs)
    return ProviderError("reported an error in place of an answer", failure, None, retry_after_s)


def _meaning(status: int, headers: Mapping[str, str], said: bytes, signs: Signs) -> tuple[Failure, float | None]:
    if status not in TELLING_STATUSES or _has(said, signs.account):
        return Failure.PROVIDER, None
    if status in _BUSY_STATUSES:
        return Failure.BUSY, _first(read_retry_after(headers), _retry_delay_s(said))
    if status == _TOO_LARGE or _has(said, signs.context):
        return Failure.CONTEXT, None
    return Failure.REFUSED, None


def _has(said: bytes, signs: tuple[bytes, ...]) -> bool:
    return any(sign in said for sign in signs)


def _retry_delay_s(said: bytes) -> float | None:
    found = _RETRY_DELAY.search(said)
    return float(found[1]) if found else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
