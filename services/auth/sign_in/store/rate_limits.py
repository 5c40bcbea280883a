"""Stores the buckets of sign-in rate limits, so that all replicas share them."""

from typing import Final

import sqlalchemy as sa

from services.auth.sign_in.store.tables import sign_in_rate_limits as buckets
from services.chassis.database.insert import insert_into
from services.chassis.load.gcra import Rate

_FORGOTTEN_AT_ONCE: Final = 100


def wait_ns(connection: sa.Connection, name: str, rate: Rate, now_ns: int) -> int:
    """Returns how long until the next attempt; 0: now. Takes nothing."""
    return rate.wait_ns(_ahead_ns(connection, name, now_ns), 1)


def take(connection: sa.Connection, name: str, rate: Rate, now_ns: int) -> int:
    """Takes one attempt; or returns how long to wait, and takes nothing."""
    # Exists from here on, so that replicas that take from it at the same time wait for each other.
    connection.execute(insert_into(connection, buckets).values(name=name, full_at_ns=now_ns).on_conflict_do_nothing())
    ahead_ns = _ahead_ns(connection, name, now_ns, locks=True)
    wait = rate.wait_ns(ahead_ns, 1)
    if not wait:
        _put(connection, name, now_ns + rate.ahead_after_ns(ahead_ns, 1))
    _forget_full(connection, name, now_ns)
    return wait


def give_back(connection: sa.Connection, name: str, rate: Rate, now_ns: int) -> None:
    """Gives back what the same transaction took: only failures count."""
    ahead_ns = _ahead_ns(connection, name, now_ns)
    _put(connection, name, now_ns + rate.ahead_after_ns(ahead_ns, -1))


def _forget_full(connection: sa.Connection, own_name: str, now_ns: int) -> None:
    """Removes full buckets that no other transaction uses; waiting for one could be a deadlock."""
    is_full = sa.and_(buckets.c.full_at_ns <= now_ns, buckets.c.name != own_name)
    found = sa.select(buckets.c.name).where(is_full).limit(_FORGOTTEN_AT_ONCE).with_for_update(skip_locked=True)
    connection.execute(buckets.delete().where(buckets.c.name.in_(found)))


def _ahead_ns(connection: sa.Connection, name: str, now_ns: int, *, locks: bool = False) -> int:
    query = sa.select(buckets.c.full_at_ns).where(buckets.c.name == name)
    full_at_ns = connection.execute(query.with_for_update() if locks else query).scalar()
    return max(0, (full_at_ns or 0) - now_ns)


def _put(connection: sa.Connection, name: str, full_at_ns: int) -> None:
    connection.execute(buckets.update().where(buckets.c.name == name).values(full_at_ns=full_at_ns))
