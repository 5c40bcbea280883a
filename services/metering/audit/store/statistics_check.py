"""Compares the statistics by day and model with the entries that they are made of, and their requests, as these say."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.audit.store.checks import IS_OPEN, AuditScope, CheckParameters, stream
from services.metering.credit.calendar import day_start_us
from services.metering.credit.records import DAY_US
from services.metering.credit.store.closings import DISORDER_US, find_last_id_before
from services.metering.credit.store.tables import ledger
from services.metering.reports.additions import SUMMED, Group, additions_of
from services.metering.reports.store.entries import SUMMED_ENTRIES, to_entry
from services.metering.reports.store.tables import usage_days


class WrongDay(NamedTuple):
    day_us: int
    account_id: str
    class_id: str
    provider: str
    model_name: str


_ENTRIES: Final = SUMMED_ENTRIES.where(
    IS_OPEN, ledger.c.entry_id <= sa.bindparam("reported_to_id", type_=sa.BigInteger)
)
_DAY: Final = sa.select(
    *(usage_days.c[name] for name in Group._fields), *(usage_days.c[name] for name in SUMMED)
).where(
    usage_days.c.of_key == sa.false(),
    usage_days.c.span == sa.literal("day"),
    usage_days.c.start_us == sa.bindparam("day_us", type_=sa.BigInteger),
)
_DAYS: Final = (
    sa.select(usage_days.c.start_us)
    .where(
        usage_days.c.of_key == sa.false(),
        usage_days.c.span == sa.literal("day"),
        usage_days.c.start_us >= sa.bindparam("open_us", type_=sa.BigInteger),
    )
    .distinct()
)
_Sums = defaultdict[Group, defaultdict[str, int]]


def recent_scope(connection: sa.Connection, scope: AuditScope) -> AuditScope:
    """Returns the period from the beginning of yesterday on: to compare all of a busy month would double the time of an
    audit."""
    yesterday_us = read_now_us(connection) // DAY_US * DAY_US - DAY_US
    if yesterday_us <= scope.parameters["open_us"]:
        return scope
    after_id = find_last_id_before(connection, yesterday_us)
    return scope._replace(parameters={**scope.parameters, "open_us": yesterday_us, "after_id": after_id})


def wrong_days(connection: sa.Connection, parameters: CheckParameters) -> Iterator[WrongDay]:
    """Returns the sums that differ from those of their entries, day by day: so an audit has two days in memory."""
    days: defaultdict[int, _Sums] = defaultdict(_new_sums)
    compared: set[int] = set()
    for row in stream(connection, _ENTRIES, parameters):
        entry = to_entry(row)
        for addition in additions_of(entry):
            sums = days[day_start_us(addition.at_us)][addition.group._replace(key_id="")]
            for name, count in addition.sums.items():
                sums[name] += count
        for day_us in [day_us for day_us in days if day_us + DAY_US + DISORDER_US < entry.recorded_at_us]:
            compared.add(day_us)
            yield from _differences(connection, day_us, days.pop(day_us))
    summed = set(connection.scalars(_DAYS, parameters))
    for day_us in sorted(summed - compared | days.keys()):
        yield from _differences(connection, day_us, days.pop(day_us, _new_sums()))


def _new_sums() -> _Sums:
    return defaultdict(lambda: defaultdict(int))


def _differences(connection: sa.Connection, day_us: int, sums: _Sums) -> Iterator[WrongDay]:
    for row in connection.execute(_DAY, {"day_us": day_us}):
        group = Group(*row[: len(Group._fields)])
        expected = sums.pop(group, defaultdict(int))
        if any(expected[name] != count for name, count in zip(SUMMED, row[len(group) :], strict=True)):
            yield _wrong(day_us, group)
    for group, missing in sorted(sums.items()):
        if any(missing.values()):
            yield _wrong(day_us, group)


def _wrong(day_us: int, group: Group) -> WrongDay:
    return WrongDay(day_us, group.account_id, group.class_id, group.provider, group.model_name)
