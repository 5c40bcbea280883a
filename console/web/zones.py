"""The reader's time zone. A script tells it in a cookie; without one, days are UTC."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from google.protobuf.timestamp_pb2 import Timestamp

from console.display.language import _

ZONE_COOKIE: Final = "legato-zone"
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,2}")
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Zone:
    info: tzinfo
    # Empty: UTC.
    name: str
    # One that is not a number of whole hours from UTC, so that days are UTC.
    refused_name: str = ""

    @property
    def words(self) -> str:
        """Says which days are meant."""
        if self.refused_name:
            return _("Days are UTC: %(zone)s is not a number of whole hours from UTC.", zone=self.refused_name)
        return _("Days are those of %(zone)s.", zone=self.name.replace("_", " ")) if self.name else _("Days are UTC.")

    def date_of(self, stamp: Timestamp) -> date:
        return datetime.fromtimestamp(stamp.seconds, self.info).date()

    def today(self, now: datetime) -> date:
        return now.astimezone(self.info).date()

    def midnight(self, day: date) -> datetime:
        """Returns the moment at which a day begins, in UTC."""
        return datetime.combine(day, time(), self.info).astimezone(UTC)


UTC_ZONE: Final = Zone(UTC, "")


def find_zone(name: str, now: datetime) -> Zone:
    """Finds a zone by its name. Usage is counted by UTC hours, so only zones of whole hours have days of their own."""
    if not _NAME.fullmatch(name) or name in ("UTC", "Etc/UTC"):
        return UTC_ZONE
    try:
        info = ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        return UTC_ZONE
    months = [datetime(year, month, 1, tzinfo=UTC) for year in (now.year - 1, now.year) for month in range(1, 13)]
    if any((moment.astimezone(info).utcoffset() or _HOUR) % _HOUR for moment in months):
        return Zone(UTC, "", refused_name=name)
    return Zone(info, name)
