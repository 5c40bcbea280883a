"""Reports revenue, tokens and cost across accounts, by day, account, class, provider and model."""

from collections.abc import Iterable
from operator import add
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.model_calls import ModelSums
from services.metering.credit.records import DAY_US
from services.metering.credit.store.balances import OutstandingCredit, read_outstanding
from services.metering.reports.store.model_days import DayFilter, DayRow, read_recent_sums, read_summed_us, read_sums
from services.metering.reports.store.tables import MODEL_DAY
from services.metering.store import Connection

# Fits into one response, with room to spare.
ROWS_MOST: Final = 100_000
# So many entries are added up for a report. Only behind a start after an upgrade are there more.
RECENT_MOST: Final = 200_000


class ReportQuery(msgspec.Struct, frozen=True):
    chosen: DayFilter
    # Columns of `model_days`, in their order.
    groups: tuple[str, ...]
    # Only so many rows, those with the highest charges; 0: all.
    top_rows: int = 0


class ReportRow(msgspec.Struct, frozen=True):
    """The sums of one group. What rows are not divided by is empty."""

    sums: ModelSums
    day_us: int | None = None
    account_id: str = ""
    class_id: str = ""
    provider: str = ""
    model_name: str = ""


class AccountsReport(NamedTuple):
    rows: list[ReportRow]
    # Of the rows that are left out.
    others: ModelSums
    other_rows: int
    total: ModelSums
    # Entries from then on are not in the report; None: all are.
    summed_us: int | None
    outstanding: OutstandingCredit


def read_report(connection: Connection, query: ReportQuery) -> AccountsReport:
    """Reads one snapshot."""
    chosen, groups = query.chosen, query.groups
    if chosen.start_us % DAY_US or chosen.end_us % DAY_US or chosen.end_us <= chosen.start_us:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("report_days"), param="start_time")
    summed = read_sums(connection, chosen, groups, ROWS_MOST + 1)
    outstanding = read_outstanding(connection)
    recent = read_recent_sums(connection, chosen, RECENT_MOST)
    summed_us = None if recent is not None else read_summed_us(connection)
    places = [MODEL_DAY.index(name) for name in groups]
    by_group: dict[tuple[Any, ...], tuple[int, ...]] = {row[: len(groups)]: row[len(groups) :] for row in summed}
    for row in recent or ():
        group = tuple(row[place] for place in places)
        by_group[group] = _plus(by_group.get(group), row[len(MODEL_DAY) :])
    if len(by_group) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("report_too_many_rows"), param="groups")
    rows = [ReportRow(ModelSums(*sums), **dict(zip(groups, key, strict=True))) for key, sums in by_group.items()]
    rows.sort(key=lambda row: (-row.sums.charged_nanos, -row.sums.cost_nanos, astuple(row)[1:]))
    shown = rows[: query.top_rows] if query.top_rows else rows
    others = rows[len(shown) :]
    if "day_us" in groups:
        shown.sort(key=lambda row: row.day_us or 0)
    return AccountsReport(shown, _total(others), len(others), _total(rows), summed_us, outstanding)


def _plus(found: DayRow | None, added: DayRow) -> DayRow:
    return added if found is None else tuple(map(add, found, added))


def _total(rows: Iterable[ReportRow]) -> ModelSums:
    columns = zip(*(astuple(row.sums) for row in rows), strict=True)
    return ModelSums(*map(sum, columns))
