"""Reports revenue, tokens and cost across accounts, by day, account, class, provider and model."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.records import DAY_US
from services.metering.credit.store.balances import OutstandingCredit, read_outstanding
from services.metering.reports.additions import SUMMED
from services.metering.reports.store.days import read_summed_us
from services.metering.reports.store.model_sums import DayFilter, Sums, read_recent_sums, read_sums
from services.metering.store import Connection

# Fits into one response, with room to spare.
ROWS_MOST: Final = 100_000
# So many entries are added up for a report. Only behind a start after an upgrade are there more.
RECENT_MOST: Final = 200_000


class ReportQuery(msgspec.Struct, frozen=True):
    chosen: DayFilter
    # What rows are divided by, in their order.
    groups: tuple[str, ...]
    # Only so many rows, those with the highest charges; 0: all.
    top_rows: int = 0


class ReportRow(msgspec.Struct, frozen=True):
    """The sums of one group. What rows are not divided by is empty."""

    sums: Sums
    day_us: int | None = None
    account_id: str = ""
    class_id: str = ""
    provider: str = ""
    model_name: str = ""

    @property
    def rank(self) -> tuple[int | str, ...]:
        charged_nanos, cost_nanos = self.sums["charged_nanos"], self.sums["cost_nanos"]
        labels = self.account_id, self.class_id, self.provider, self.model_name
        return -charged_nanos, -cost_nanos, self.day_us or 0, *labels


class AccountsReport(NamedTuple):
    rows: list[ReportRow]
    # Of the rows that are left out.
    others: Sums
    other_rows: int
    total: Sums
    # Entries from then on are not in the report; None: all are.
    summed_us: int | None
    outstanding: OutstandingCredit


def read_report(connection: Connection, query: ReportQuery) -> AccountsReport:
    """Reads one snapshot."""
    chosen, groups = query.chosen, query.groups
    if chosen.start_us % DAY_US or chosen.end_us % DAY_US or chosen.end_us <= chosen.start_us:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("report_days"), param="start_time")
    by_group = read_sums(connection, chosen, groups, ROWS_MOST + 1)
    outstanding = read_outstanding(connection)
    recent = read_recent_sums(connection, chosen, RECENT_MOST)
    summed_us = None if recent is not None else read_summed_us(connection)
    for labels, added in recent or ():
        sums = by_group.setdefault(tuple(labels[name] for name in groups), dict.fromkeys(SUMMED, 0))
        for name, count in added.items():
            sums[name] += count
    if len(by_group) > ROWS_MOST:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("report_too_many_rows"), param="groups")
    rows = [ReportRow(sums, **dict(zip(groups, key, strict=True))) for key, sums in by_group.items()]
    rows.sort(key=lambda row: row.rank)
    shown = rows[: query.top_rows] if query.top_rows else rows
    others = rows[len(shown) :]
    if "day_us" in groups:
        shown.sort(key=lambda row: row.day_us or 0)
    return AccountsReport(shown, _total(others), len(others), _total(rows), summed_us, outstanding)


def _total(rows: Iterable[ReportRow]) -> Sums:
    total = dict.fromkeys(SUMMED, 0)
    for row in rows:
        for name, count in row.sums.items():
            total[name] += count
    return total
