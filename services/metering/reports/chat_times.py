"""Counts how long chats took, in logarithmic buckets, and finds the percentiles of such counts."""

import math
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

Measure = Literal["first_token", "duration"]
MEASURES: Final[tuple[Measure, ...]] = get_args(Measure)

# Each bucket ends at this many times its start. The middle of a bucket is at most 4.5 % from all times in it.
_BUCKETS_OF_TWICE: Final = 8


class Percentiles(NamedTuple):
    chats: int = 0
    p50_ms: int = 0
    p95_ms: int = 0


def bucket_of(time_ms: int) -> int:
    return math.floor(_BUCKETS_OF_TWICE * math.log2(max(1, time_ms)))


def percentiles_of(counts: Mapping[int, int]) -> Percentiles:
    """Returns the percentiles of the times that each bucket has so many of."""
    chats = sum(counts.values())
    return (
        Percentiles(chats, *(_percentile(counts, chats, percent) for percent in (50, 95))) if chats else Percentiles()
    )


def _percentile(counts: Mapping[int, int], chats: int, percent: int) -> int:
    """Returns the time that so many percent of the chats did not exceed, as the middle of its bucket."""
    rank, found = -(-chats * percent // 100), 0
    for bucket in sorted(counts):
        found += counts[bucket]
        if found >= rank:
            return round(2 ** ((bucket + 0.5) / _BUCKETS_OF_TWICE))
    raise AssertionError("The last bucket has the last rank.")
