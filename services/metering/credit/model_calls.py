"""The calls to models that were made for one request, as its hold keeps them."""

from collections.abc import Iterable
from typing import Final

import msgspec

# A request has a call or two. Each round of search, and each model that continues an answer, adds one.
CALLS_MOST: Final = 50


class ModelCall(msgspec.Struct, frozen=True, array_like=True):
    """A call, as its provider counts it; in JSON an array of these fields."""

    # The operator's names.
    provider: str
    model_name: str
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int
    # None: unknown.
    cost_nanos: int | None


class ModelSums(msgspec.Struct, frozen=True):
    """Sums of entries and of the calls to models behind them. Fields are the columns of `model_days`."""

    requests: int = 0
    # What was charged for.
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    charged_nanos: int = 0
    # What was used and is not paid.
    lost_nanos: int = 0
    granted_nanos: int = 0
    # Without the part of a return that was owed or written off.
    adjusted_nanos: int = 0
    # The refunds and disputes of card payments, whole.
    returned_nanos: int = 0
    # Of what was charged, the part whose cost is known.
    costed_nanos: int = 0
    calls: int = 0
    # By the providers' own counts.
    told_prompt_tokens: int = 0
    told_cached_tokens: int = 0
    cache_write_tokens: int = 0
    told_completion_tokens: int = 0
    cost_nanos: int = 0
    # Those whose cost is unknown.
    uncosted_calls: int = 0


def encode_calls(calls: Iterable[ModelCall]) -> str:
    """Returns JSON: an array of the calls, of which the last one answered."""
    return msgspec.json.encode(list(calls)[-CALLS_MOST:]).decode()
