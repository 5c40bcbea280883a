"""Tells which hours are over, so that sums of them can be kept in memory, and has one thread at a time add them up."""

import threading
from typing import Any, Final, NamedTuple

from services.chassis.database.clock import read_now_us
from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.records import HOUR_US
from services.metering.store.retention.closings import read_retention

# A transaction that charges in an hour has committed by the end of the next one.
OVER_AFTER_US: Final = HOUR_US
# Shorter than a page waits for an answer.
BUILDING_WAIT_S: Final = 0.4
_LOCKS: Final = 64


class PastHours(NamedTuple):
    # The hours of months before it are summed up, or their late charges are pruned.
    retained_us: int
    # Hours from it on are not over.
    over_us: int


def find_past_hours(connection: Any) -> PastHours:
    """Finds the hours whose counters only late charges change."""
    now_us = read_now_us(connection)
    retention = read_retention(connection)
    retained_us = max(retention.ledger_pruned_before_us, retention.usage_marked_before_us)
    return PastHours(retained_us, now_us - now_us % HOUR_US - OVER_AFTER_US)


class BuildLocks:
    """Has one thread at a time add up an account's counters: another one waits, and does not do the same work."""

    def __init__(self, wait_s: float = BUILDING_WAIT_S) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._wait_s = wait_s

    def acquire(self, account_id: str) -> threading.Lock:
        """Returns the lock, which is held then. Raises instead of keeping a reader of the database for long."""
        lock = self._locks[hash(account_id) % _LOCKS]
        if not lock.acquire(timeout=self._wait_s):
            raise LegatoError(Reason.UNAVAILABLE, "The account's usage is being added up. Try again in some seconds.")
        return lock
