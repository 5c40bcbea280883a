"""Costs of this month by today, against those of the same days of the month before, as the ledger has them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from console.web.periods import Days
from console.web.visit import Visit
from console.web.zones import Zone
from legato_protos.metering.v1 import statements_pb2 as pb


@dataclass(frozen=True, slots=True)
class MonthlyCosts:
    spent_nanos: int
    # By the same day, or by the end of a month that is shorter.
    before_nanos: int
    # The days of the month before that are compared.
    first_before: date
    last_before: date

    @property
    def more_nanos(self) -> int:
        return self.spent_nanos - self.before_nanos


async def read_monthly_costs(visit: Visit) -> MonthlyCosts | None:
    """Returns what was spent; None if metering does not answer."""
    zone, today = visit.zone, visit.zone.today(visit.now)
    days = Days(_month_before(today), today)
    request = pb.ListLedgerDaysRequest(account_id=visit.account_id, time_zone=zone.name, **days.times(zone))
    listed = await visit.optional(visit.metering.statements.ListLedgerDays(request), "months")
    return None if listed is None else compare_months(listed.days, zone, today)


def compare_months(days: Iterable[pb.LedgerDay], zone: Zone, today: date) -> MonthlyCosts:
    first, first_before = today.replace(day=1), _month_before(today)
    last_before = min(first_before + (today - first), first - timedelta(days=1))
    spent_nanos = before_nanos = 0
    for day in days:
        when = zone.date_of(day.start_time)
        if first <= when <= today:
            spent_nanos += day.charged_nanos
        elif first_before <= when <= last_before:
            before_nanos += day.charged_nanos
    return MonthlyCosts(spent_nanos, before_nanos, first_before, last_before)


def _month_before(today: date) -> date:
    return (today.replace(day=1) - timedelta(days=1)).replace(day=1)
