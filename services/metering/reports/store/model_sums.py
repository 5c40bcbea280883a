"""Reads sums across accounts: by day, account, class, provider and model."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.metering.credit.calendar import day_start_us
from services.metering.reports.additions import SUMMED, Addition
from services.metering.reports.store.entries import read_recent
from services.metering.reports.store.tables import usage_days
from services.metering.store.schema import total

# The columns that rows can be divided by, under their names in a report.
GROUPS: Final = {
    "day_us": usage_days.c.start_us,
    **{name: usage_days.c[name] for name in ("account_id", "class_id", "provider", "model_name")},
}
# The sums of one group, by column.
Sums = dict[str, int]
# What an entry counts for, under the names of `GROUPS`.
Labels = dict[str, Any]


class DayFilter(NamedTuple):
    """The rows that a report is about; an empty text: all."""

    start_us: int
    # Exclusive.
    end_us: int
    account_id: str = ""
    class_id: str = ""
    provider: str = ""
    model_name: str = ""

    @property
    def names(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if name in GROUPS and value}


def read_sums(
    connection: sa.Connection, chosen: DayFilter, groups: Sequence[str], most: int
) -> dict[tuple[Any, ...], Sums]:
    """Returns the sums of so many groups at most, those that have any; without groups, those of everything."""
    columns = [GROUPS[name] for name in groups]
    query = (
        sa.select(*columns, *(total(usage_days.c[name]) for name in SUMMED))
        .where(usage_days.c.of_key == sa.false(), usage_days.c.span == sa.literal("day"))
        .where(usage_days.c.start_us >= chosen.start_us, usage_days.c.start_us < chosen.end_us)
        .where(*(GROUPS[name] == value for name, value in chosen.names.items()))
        .group_by(*columns)
        .limit(most)
    )
    found = ((tuple(row[: len(groups)]), row[len(groups) :]) for row in connection.execute(query))
    # Rows may have nothing but failures or times.
    return {group: dict(zip(SUMMED, sums, strict=True)) for group, sums in found if any(sums) or not groups}


def read_recent_sums(connection: sa.Connection, chosen: DayFilter, most: int) -> list[tuple[Labels, Sums]] | None:
    """Returns what the entries add that the statistics do not have yet, each with all that groups are made of; None if
    there are more than `most` entries."""
    recent = read_recent(connection, most)
    if recent is None:
        return None
    described = ((_labels_of(addition), dict(addition.sums)) for addition in recent if addition.sums)
    return [each for each in described if _is_chosen(chosen, each[0])]


def _labels_of(addition: Addition) -> Labels:
    return {"day_us": day_start_us(addition.at_us), **addition.group._asdict()}


def _is_chosen(chosen: DayFilter, labels: Labels) -> bool:
    is_named = all(labels[name] == value for name, value in chosen.names.items())
    return chosen.start_us <= labels["day_us"] < chosen.end_us and is_named
