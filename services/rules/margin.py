"""The margin of a row of a report: its charges without the known cost of its calls; and its counts."""

from typing import Any, Protocol

from services.rules.usage import named


class CostedSums(Protocol):
    @property
    def costed_nanos(self) -> int:
        """The part of what was charged whose cost is known."""
        ...

    @property
    def calls(self) -> int: ...
    @property
    def uncosted_calls(self) -> int: ...
    @property
    def cost_nanos(self) -> int: ...


def known_cost_nanos(sums: CostedSums) -> int | None:
    """Returns the cost of the calls whose cost is known; None, which is not nothing, if there are none."""
    return sums.cost_nanos if sums.calls > sums.uncosted_calls else None


def margin_nanos(sums: CostedSums) -> int | None:
    cost_nanos = known_cost_nanos(sums)
    return None if cost_nanos is None else sums.costed_nanos - cost_nanos


def provider_counts(sums: Any) -> dict[str, int]:
    """Returns what providers counted of the calls of a row, under the names of a file."""
    return {f"told_{name}": count for name, count in named(sums.told_usage).items()}
