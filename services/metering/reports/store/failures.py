"""Adds the chats that failed, as edges report them, to the statistics."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.additions import Addition, Group
from services.metering.reports.store.days import add_to_days

# An edge that was cut off reports later. What is older, or in the future, is of a clock that is wrong: it counts now.
LATEST_US: Final = 2 * DAY_US


class Failures(NamedTuple):
    """Chats that failed for one reason, as many as `chats`."""

    account_id: str
    hour_us: int
    key_id: str
    class_id: str
    reason: str
    # The answer had begun.
    is_cut: bool
    chats: int


def add_failures(connection: sa.Connection, reported: Iterable[Failures]) -> None:
    add_to_days(connection, _additions(reported, read_now_us(connection)))


def _additions(reported: Iterable[Failures], now_us: int) -> Iterator[Addition]:
    for each in reported:
        is_plausible = now_us - LATEST_US < each.hour_us <= now_us + HOUR_US
        group = Group(each.account_id, each.key_id, each.class_id)
        failed = {each.reason: (each.chats, each.chats if each.is_cut else 0)}
        yield Addition(group, each.hour_us if is_plausible else now_us, failures=failed)
