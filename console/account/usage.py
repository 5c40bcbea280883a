"""Reads what an account used and has, and estimates how long its credit lasts."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from typing import Final

from console.display.charts import CostChart, cost_chart
from console.display.language import _
from console.display.words import day, day_range
from console.web.periods import Period, period_in, stamp_of
from console.web.visit import Visit
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1 import statements_pb2

RECENT_DAYS: Final = 7
LONGEST_ESTIMATE_DAYS: Final = 365


# By class.
Prices = dict[str, pb.Price]


async def balance(visit: Visit) -> pb.Balance | None:
    """Returns the balance; None if metering does not answer."""
    found = await visit.credit()
    return None if found is None else found.balance


def free_nanos(balance: pb.Balance) -> int:
    """Returns what new requests can hold."""
    return max(0, balance.balance_nanos - balance.held_nanos - balance.owed_nanos)


async def read_prices(visit: Visit) -> Prices:
    """Returns the current prices; none if metering does not answer."""
    listed = await visit.optional(visit.metering.statements.ListPrices(statements_pb2.ListPricesRequest()), "prices")
    if listed is None:
        return {}
    current = (each for each in listed.versions if each.version == listed.current_version)
    return {priced.class_id: priced.price for version in current for priced in version.prices}


async def costs_by_class(visit: Visit) -> CostChart | None:
    """Draws the last 30 days; None if metering does not answer."""
    period = period_in({}, visit.zone, visit.now)
    rows = await _read_usage(visit, usage_request(visit, period, group_by_class=True))
    return None if rows is None else chart_of(rows, period, lambda row: row.class_id)


async def read_recent_usage(
    visit: Visit, key_ids: Sequence[str] = (), *, by_key: bool = False, by_class: bool = False
) -> list[pb.UsageRow] | None:
    """Returns the last 30 days of these keys or of all, a row for each group that has any usage; None if metering does
    not answer."""
    period = period_in({}, visit.zone, visit.now)
    bucket = pb.USAGE_BUCKET_PERIOD
    request = usage_request(visit, period, key_ids, group_by_key=by_key, group_by_class=by_class, bucket=bucket)
    return await _read_usage(visit, request)


async def _read_usage(visit: Visit, request: pb.ListUsageRequest) -> list[pb.UsageRow] | None:
    listed = await visit.optional(visit.metering.metering.ListUsage(request), "usage")
    return None if listed is None else list(listed.rows)


def usage_request(
    visit: Visit,
    period: Period,
    key_ids: Sequence[str] = (),
    *,
    group_by_key: bool = False,
    group_by_class: bool = False,
    bucket: "pb.UsageBucket.ValueType | None" = None,
) -> pb.ListUsageRequest:
    """Asks for the rows of a period, of these keys or of all: one for each column that is drawn, or each `bucket`."""
    return pb.ListUsageRequest(
        account_id=visit.account_id,
        start_time=stamp_of(period.start),
        end_time=stamp_of(period.end),
        bucket=bucket or (pb.USAGE_BUCKET_HOUR if period.unit == "hour" else pb.USAGE_BUCKET_DAY),
        group_by_class=group_by_class,
        group_by_key=group_by_key,
        time_zone=period.zone.name,
        key_ids=key_ids,
    )


def chart_of(rows: Iterable[pb.UsageRow], period: Period, name_of: Callable[[pb.UsageRow], str]) -> CostChart:
    """Draws what each name costs."""
    costs: defaultdict[str, defaultdict[date, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        costs[name_of(row)][period.column_of(row.start_time)] += row.cost_nanos
    return cost_chart(period.columns, costs, [period.title_of(column) for column in period.columns])


def lasts_until(free_nanos: int, day_totals: list[int], today: date) -> str:
    """Estimates, from the last full days, when the credit is used up. A range, since days differ."""
    if free_nanos <= 0:
        return _("Used up")
    recent = day_totals[-RECENT_DAYS - 1 : -1]
    mean = statistics.fmean(recent) if recent else 0.0
    if mean <= 0:
        # Days are compared when they are over.
        return _("Too early to tell") if any(day_totals[-1:]) else _("No recent use")
    spread = statistics.pstdev(recent) / math.sqrt(len(recent))
    soonest = free_nanos / (mean + spread)
    latest = free_nanos / max(mean - spread, mean / 4)
    if soonest > LONGEST_ESTIMATE_DAYS:
        return _("More than a year")
    first = today + timedelta(days=int(soonest))
    if latest > LONGEST_ESTIMATE_DAYS:
        return _("%(day)s or later", day=day(first))
    return day_range(first, today + timedelta(days=int(latest)))
