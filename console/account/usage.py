"""Reads what an account used and has, and estimates how long its credit lasts."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from console.display.charts import CostChart, cost_chart
from console.display.words import day, day_range
from console.web.periods import stamp_of
from console.web.visit import Visit
from protos.metering.v1 import metering_pb2 as pb
from protos.metering.v1 import statements_pb2

PERIOD_DAYS: Final = 30
RECENT_DAYS: Final = 7
LONGEST_ESTIMATE_DAYS: Final = 365


# By class.
Prices = dict[str, pb.Price]


@dataclass(frozen=True, slots=True)
class KeyUsage:
    requests: int = 0
    cost_nanos: int = 0


def last_days(visit: Visit) -> list[date]:
    """Returns the days of the period, in the reader's zone, ending with today."""
    today = visit.zone.today(visit.now)
    return [today - timedelta(days=ago) for ago in reversed(range(PERIOD_DAYS))]


async def balance(visit: Visit) -> pb.Balance | None:
    """Returns the balance; None if metering does not answer."""
    request = pb.GetBalanceRequest(account_id=visit.account_id)
    found = await visit.optional(visit.metering.metering.GetBalance(request), "balance")
    return None if found is None else found.balance


async def read_prices(visit: Visit) -> Prices:
    """Returns the current prices; none if metering does not answer."""
    listed = await visit.optional(visit.metering.statements.ListPrices(statements_pb2.ListPricesRequest()), "prices")
    if listed is None:
        return {}
    current = (each for each in listed.versions if each.version == listed.current_version)
    return {priced.class_id: priced.price for version in current for priced in version.prices}


async def costs_by_class(visit: Visit) -> CostChart | None:
    rows = await _rows(visit)
    if rows is None:
        return None
    costs: defaultdict[str, dict[date, int]] = defaultdict(dict)
    for row in rows:
        when = visit.zone.date_of(row.start_time)
        costs[row.class_id][when] = costs[row.class_id].get(when, 0) + row.cost_nanos
    return cost_chart(last_days(visit), costs)


async def usage_by_key(visit: Visit, key_ids: Sequence[str]) -> dict[str, KeyUsage] | None:
    """Returns requests and cost of the period by key, of those that have any; None if metering does not answer."""
    rows = await _rows(visit, key_ids) if key_ids else []
    if rows is None:
        return None
    totals: dict[str, KeyUsage] = {}
    for row in rows:
        before = totals.get(row.key_id, KeyUsage())
        totals[row.key_id] = KeyUsage(before.requests + row.requests, before.cost_nanos + row.cost_nanos)
    return totals


async def _rows(visit: Visit, key_ids: Sequence[str] = ()) -> list[pb.UsageRow] | None:
    """Reads the period by day and class; or as a whole, of these keys."""
    days, zone = last_days(visit), visit.zone
    request = pb.ListUsageRequest(
        account_id=visit.account_id,
        start_time=stamp_of(zone.midnight(days[0])),
        end_time=stamp_of(zone.midnight(days[-1] + timedelta(days=1))),
        time_zone=zone.name,
        bucket=pb.USAGE_BUCKET_PERIOD if key_ids else pb.USAGE_BUCKET_DAY,
        group_by_key=bool(key_ids),
        group_by_class=not key_ids,
        key_ids=key_ids,
    )
    listed = await visit.optional(visit.metering.metering.ListUsage(request), "usage")
    return None if listed is None else list(listed.rows)


def lasts_until(free_nanos: int, day_totals: list[int], now: datetime) -> str:
    """Estimates, from the last full days, when the credit is used up. A range, since days differ."""
    if free_nanos <= 0:
        return "Used up"
    recent = day_totals[-RECENT_DAYS - 1 : -1]
    mean = statistics.fmean(recent) if recent else 0.0
    if mean <= 0:
        # Days are compared when they are over.
        return "Too early to tell" if any(day_totals[-1:]) else "No recent use"
    spread = statistics.pstdev(recent) / math.sqrt(len(recent))
    soonest = free_nanos / (mean + spread)
    latest = free_nanos / max(mean - spread, mean / 4)
    if soonest > LONGEST_ESTIMATE_DAYS:
        return "More than a year"
    first = now.date() + timedelta(days=int(soonest))
    if latest > LONGEST_ESTIMATE_DAYS:
        return f"{day(first)} or later"
    return day_range(first, now.date() + timedelta(days=int(latest)))
