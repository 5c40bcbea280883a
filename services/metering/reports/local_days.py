"""Days of a time zone as sums of UTC hours, which is what usage is counted by."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.records import DAY_US, HOUR_US

# Each day of a period is looked at.
LONGEST_PERIOD_US: Final = 50 * 366 * DAY_US
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LocalDays:
    zone: tzinfo
    # From when on, and by how much, local time is ahead of UTC. The first holds for all earlier times too.
    offsets: tuple[tuple[int, int], ...] = ((0, 0),)

    def start_us(self, local_us: int) -> int:
        """Returns when a day begins, from its midnight as a local time."""
        midnight = _EPOCH + timedelta(microseconds=local_us)
        return (midnight.replace(tzinfo=self.zone) - _EPOCH) // timedelta(microseconds=1)


UTC_DAYS: Final = LocalDays(UTC)


def require_hours(start_us: int, end_us: int) -> None:
    if start_us % HOUR_US or end_us % HOUR_US:
        raise _invalid(Sentence("full_hours"), "start_time")
    if start_us > end_us:
        raise _invalid(Sentence("start_after_end"), "start_time")


def find_local_days(name: str, start_us: int, end_us: int) -> LocalDays:
    """Finds the days of a zone, in a period. Its offset must always be in whole hours: there are no other counters."""
    if not name:
        return UTC_DAYS
    if end_us - start_us > LONGEST_PERIOD_US:
        raise _invalid(Sentence("period_too_long"), "start_time")
    zone = _find_zone(name)
    offsets = [(start_us, _offset_us(zone, start_us))]
    for day_us in range(start_us + DAY_US, end_us + DAY_US, DAY_US):
        offset_us = _offset_us(zone, day_us)
        if offset_us != offsets[-1][1]:
            hours = range(day_us - DAY_US + HOUR_US, day_us + HOUR_US, HOUR_US)
            changed_us = next(hour_us for hour_us in hours if _offset_us(zone, hour_us) == offset_us)
            offsets.append((changed_us, offset_us))
    if any(offset_us % HOUR_US for _, offset_us in offsets):
        raise _invalid(Sentence("zone_not_whole_hours"), "time_zone")
    return LocalDays(zone, tuple(offsets))


def _find_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise _invalid(Sentence("zone_unknown"), "time_zone") from None


def _offset_us(zone: ZoneInfo, at_us: int) -> int:
    offset = (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone).utcoffset()
    return (offset or timedelta()) // timedelta(microseconds=1)


def _invalid(sentence: Sentence, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param=param)
