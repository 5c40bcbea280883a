"""Periods that a reader chooses, in whole days of the reader's time zone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from console.display.language import N_, _
from console.display.words import clock, day, day_range, month, short_day, short_month
from console.web.zones import Zone

CHOICES: Final = {
    "today": N_("Today"),
    "7": N_("Last 7 days"),
    "30": N_("Last 30 days"),
    "90": N_("Last 90 days"),
    "month": N_("This month"),
    "last-month": N_("Last month"),
    "custom": N_("From … to …"),
}
DEFAULT: Final = "30"
EARLIEST: Final = date(2020, 1, 1)
LATEST_YEAR: Final = 2200
HOURS_UP_TO_DAYS: Final = 2
DAYS_UP_TO_DAYS: Final = 100


@dataclass(frozen=True, slots=True)
class Period:
    choice: str
    first: date
    # Part of it.
    last: date
    zone: Zone
    # What is wrong with the dates that were given.
    problem: str = ""

    @property
    def start(self) -> datetime:
        return self.zone.midnight(self.first)

    @property
    def end(self) -> datetime:
        return self.zone.midnight(self.last + timedelta(days=1))

    @property
    def unit(self) -> str:
        """The unit that is drawn: hour, day or month."""
        days = (self.last - self.first).days + 1
        return "hour" if days <= HOURS_UP_TO_DAYS else "day" if days <= DAYS_UP_TO_DAYS else "month"

    @property
    def words(self) -> str:
        return day_range(self.first, self.last)

    @property
    def columns(self) -> list[date]:
        """The hours of the period, each by its beginning in UTC, since a clock that goes back has an hour twice; or its
        local days or months."""
        if self.unit == "hour":
            hours = int((self.end - self.start) / timedelta(hours=1))
            return [self.start + timedelta(hours=each) for each in range(hours)]
        days = [self.first + timedelta(days=each) for each in range((self.last - self.first).days + 1)]
        return days if self.unit == "day" else sorted({each.replace(day=1) for each in days})

    def column_of(self, stamp: Timestamp) -> date:
        if self.unit == "hour":
            return stamp.ToDatetime(UTC)
        local = self.zone.date_of(stamp)
        return local if self.unit == "day" else local.replace(day=1)

    def title_of(self, column: date) -> str:
        if isinstance(column, datetime):
            local = column.astimezone(self.zone.info)
            return f"{day(local.date())}, {clock(local)}"
        return day(column) if self.unit == "day" else month(column)

    def mark_of(self, column: date) -> str:
        """Returns a short name, for an axis."""
        if isinstance(column, datetime):
            return clock(column.astimezone(self.zone.info))
        return short_day(column) if self.unit == "day" else short_month(column)

    @property
    def query(self) -> dict[str, str]:
        """The fields that choose it again, on another page or later."""
        if self.choice == "custom":
            return {"period": "custom", "from": self.first.isoformat(), "to": self.last.isoformat()}
        return {"period": self.choice}


def period_in(query: Mapping[str, str], zone: Zone, now: datetime) -> Period:
    """Reads the period that is chosen in an address; the last 30 days if none is."""
    today, choice = zone.today(now), query.get("period", DEFAULT)
    if choice == "custom":
        return _custom(query, zone, today)
    named = _named(choice, zone, today)
    given = (query.get("from"), query.get("to"))
    is_changed = all(given) and given != (named.first.isoformat(), named.last.isoformat())
    # Changed dates count, even if the choice beside them was left as it was.
    return _custom(query, zone, today) if query.get("was") == choice and is_changed else named


def _named(choice: str, zone: Zone, today: date) -> Period:
    if choice == "today":
        return Period(choice, today, today, zone)
    if choice == "month":
        return Period(choice, today.replace(day=1), today, zone)
    if choice == "last-month":
        last = today.replace(day=1) - timedelta(days=1)
        return Period(choice, last.replace(day=1), last, zone)
    days = int(choice) if choice in ("7", "30", "90") else int(DEFAULT)
    return Period(str(days), today - timedelta(days=days - 1), today, zone)


def _custom(query: Mapping[str, str], zone: Zone, today: date) -> Period:
    first, last = date_in(query.get("from", "")), date_in(query.get("to", ""))
    if first is None or last is None:
        return replace(_named(DEFAULT, zone, today), problem=_("Give both dates, as year-month-day."))
    if first > last:
        return replace(_named(DEFAULT, zone, today), problem=_("The first day must not be after the last."))
    return Period("custom", max(first, EARLIEST), max(min(last, today), first, EARLIEST), zone)


@dataclass(frozen=True, slots=True)
class Days:
    """The first and the last day of a list, each if it is given."""

    first: date | None
    last: date | None
    # They were given in the other order.
    is_swapped: bool = False

    @property
    def query(self) -> dict[str, str]:
        return {name: day.isoformat() for name, day in (("from", self.first), ("to", self.last)) if day}

    def times(self, zone: Zone) -> dict[str, Any]:
        """Returns the times of a request to metering."""
        return {
            "start_time": stamp_of(zone.midnight(self.first)) if self.first else None,
            "end_time": stamp_of(zone.midnight(self.last + timedelta(days=1))) if self.last else None,
        }


ALL_DAYS: Final = Days(None, None)


def days_in(query: Mapping[str, str]) -> Days:
    """Reads the first and the last day, in whichever order they are given."""
    first, last = date_in(query.get("from", "")), date_in(query.get("to", ""))
    return Days(last, first, True) if first is not None and last is not None and first > last else Days(first, last)


def date_in(given: str) -> date | None:
    """Returns a day of this age; None if it is none."""
    try:
        found = date.fromisoformat(given)
    except ValueError:
        return None
    return found if EARLIEST.year <= found.year < LATEST_YEAR else None


def stamp_of(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment.astimezone(UTC))
    return stamp
