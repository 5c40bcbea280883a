"""Hours, days and months of UTC, by which statistics are kept, and the fewest of them that a period consists of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from services.metering.credit.calendar import day_start_us, month_start_us, next_day_us, next_month_us
from services.metering.credit.records import HOUR_US

# The longest first.
Span = Literal["month", "day", "hour"]
SPANS: Final[tuple[Span, ...]] = get_args(Span)


class _Bounds(NamedTuple):
    """The start of the span that a time is in, and that of the next one."""

    start_of: Callable[[int], int]
    next_of: Callable[[int], int]


_BOUNDS: Final[Mapping[Span, _Bounds]] = {
    "month": _Bounds(month_start_us, next_month_us),
    "day": _Bounds(day_start_us, next_day_us),
    "hour": _Bounds(lambda at_us: at_us - at_us % HOUR_US, lambda at_us: at_us - at_us % HOUR_US + HOUR_US),
}


def span_start_us(span: Span, at_us: int) -> int:
    return _BOUNDS[span].start_of(at_us)


def starts_of(periods: Sequence[tuple[int, int]]) -> dict[Span, list[int]]:
    """Divides periods of whole hours into months, the days around those, and the hours around these; returns the starts
    of each."""
    starts: dict[Span, list[int]] = {span: [] for span in SPANS}
    for start_us, end_us in periods:
        for span, at_us in _divided(start_us, end_us, SPANS):
            starts[span].append(at_us)
    return {span: found for span, found in starts.items() if found}


def _divided(start_us: int, end_us: int, spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    if start_us >= end_us:
        return
    span, *shorter = spans
    start_of, next_of = _BOUNDS[span]
    first_us, last_us = next_of(start_us - 1), start_of(end_us)
    if first_us >= last_us:
        yield from _divided(start_us, end_us, shorter)
        return
    yield from _divided(start_us, first_us, shorter)
    while first_us < last_us:
        yield span, first_us
        first_us = next_of(first_us)
    yield from _divided(last_us, end_us, shorter)
