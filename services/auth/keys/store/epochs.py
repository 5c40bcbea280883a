"""Stores the epoch, and which keys changed with it.

Every change that affects caches raises the epoch in its own transaction. The epoch is a row, not a sequence: its lock
is held until the commit, so epochs become visible in order and none is seen before its change.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import sqlalchemy as sa

from services.auth.core.peppers import Peppers
from services.auth.core.store.tables import accounts
from services.auth.keys.records import Changes, MaintenanceNotice
from services.auth.keys.store.tables import epoch, key_changes, keys, playground_tokens

# How many epochs the list of changes covers. Callers ask five times a second: a thousand is minutes of silence on the
# busiest day. A caller that was away for longer drops its cache.
HISTORY_EPOCHS: Final = 1_000
# A longer list costs more than dropping the cache.
LISTED_KEYS_MOST: Final = 1_000

_MAINTENANCE: Final = {field.name: epoch.c[f"maintenance_{field.name}"] for field in fields(MaintenanceNotice)}
MAINTENANCE: Final = tuple(_MAINTENANCE.values())
# Built once: each edge asks five times a second, and building it takes longer than its answer.
_CURRENT: Final = sa.select(epoch.c.value, epoch.c.forgotten, *MAINTENANCE)

_IS_REFUSED: Final = sa.or_(keys.c.revoked_at_us.is_not(None), accounts.c.suspended_at_us.is_not(None))


def raise_epoch(connection: sa.Connection, key_ids: Sequence[str] | None) -> None:
    """Raises the epoch because these keys or playground tokens changed; None: any may have. If they are too many to
    list, callers see a gap."""
    raised = epoch.update().values(value=epoch.c.value + 1).returning(epoch.c.value, epoch.c.forgotten)
    value, forgotten = connection.execute(raised).one()
    if key_ids is None or len(key_ids) > LISTED_KEYS_MOST:
        forgotten = value
    else:
        forgotten = max(forgotten, value - HISTORY_EPOCHS)
        if key_ids:
            connection.execute(key_changes.insert(), [{"epoch": value, "key_id": key_id} for key_id in key_ids])
    connection.execute(key_changes.delete().where(key_changes.c.epoch <= forgotten))
    connection.execute(epoch.update().values(forgotten=forgotten))


def continue_epochs_after_restore(connection: sa.Connection, now_us: int) -> None:
    """Raises the epoch of a restored database above every one that callers have seen of the database before, and tells
    them to drop their caches. The time in microseconds is above any count of changes, and above the time of an earlier
    restore by more than the changes since."""
    value = max(now_us, connection.execute(sa.select(epoch.c.value)).scalar_one() + 1)
    connection.execute(epoch.update().values(value=value - 1))
    raise_epoch(connection, None)


def record_peppers(connection: sa.Connection, recorded: str) -> bool:
    """Records the peppers of a starting replica. If they differ from the last ones, callers are told to drop their
    caches; returns whether they do."""
    if connection.execute(sa.select(epoch.c.peppers).with_for_update()).scalar_one() == recorded:
        return False
    connection.execute(epoch.update().values(peppers=recorded))
    raise_epoch(connection, None)
    return True


def find_contradicted(connection: sa.Connection, peppers: Peppers) -> list[int]:
    """Returns the versions recorded with other peppers, if keys made with those are not revoked."""
    recorded = str(connection.execute(sa.select(epoch.c.peppers)).scalar_one())
    contradicted = peppers.contradicted_by(recorded)
    query = sa.select(keys.c.pepper_version).distinct()
    query = query.where(keys.c.pepper_version.in_(contradicted), keys.c.revoked_at_us.is_(None))
    return sorted(connection.execute(query).scalars()) if contradicted else []


def changes_since(connection: sa.Connection, since_epoch: int) -> Changes:
    """Returns what changed after `since_epoch`; call it on one snapshot."""
    now = connection.execute(_CURRENT).one()
    maintenance = to_maintenance(now)
    if since_epoch >= now.value:
        return Changes(now.value, maintenance=maintenance)
    if since_epoch < now.forgotten:
        return Changes(now.value, has_gap=True, maintenance=maintenance)
    changed = connection.execute(
        sa.select(key_changes.c.key_id).distinct().where(key_changes.c.epoch > since_epoch).limit(LISTED_KEYS_MOST + 1)
    )
    listed = changed.scalars().all()
    if len(listed) > LISTED_KEYS_MOST:
        return Changes(now.value, has_gap=True, maintenance=maintenance)
    return Changes(now.value, tuple(listed), tuple(find_refused_keys(connection, listed)), maintenance=maintenance)


def read_maintenance(connection: sa.Connection, *, locks: bool = False) -> MaintenanceNotice | None:
    query = sa.select(*MAINTENANCE)
    return to_maintenance(connection.execute(query.with_for_update() if locks else query).one())


def put_maintenance(connection: sa.Connection, after: MaintenanceNotice | None) -> None:
    """Stores maintenance in the epoch's row, which is locked, and raises the epoch."""
    values = {column: getattr(after, name, None) for name, column in _MAINTENANCE.items()}
    connection.execute(epoch.update().values(values))
    # No keys changed.
    raise_epoch(connection, [])


def to_maintenance(row: Any) -> MaintenanceNotice | None:
    """Converts a row with the columns of MAINTENANCE."""
    message, retry_after_s, started_at_us = (getattr(row, column.name) for column in MAINTENANCE)
    return None if message is None else MaintenanceNotice(message, retry_after_s, started_at_us)


def find_refused_keys(connection: sa.Connection, key_ids: Sequence[str]) -> list[str]:
    """Returns those keys and playground tokens that are revoked or unknown, or whose account is suspended."""
    if not key_ids:
        return []
    of_account = accounts.c.account_id == keys.c.account_id
    good_keys = sa.select(keys.c.key_id).join(accounts, of_account)
    of_key = playground_tokens.c.key_id == keys.c.key_id
    good_tokens = sa.select(playground_tokens.c.token_id).select_from(
        sa.join(playground_tokens, keys, of_key).join(accounts, of_account)
    )
    query = sa.union_all(
        good_keys.where(keys.c.key_id.in_(key_ids), sa.not_(_IS_REFUSED)),
        good_tokens.where(playground_tokens.c.token_id.in_(key_ids), sa.not_(_IS_REFUSED)),
    )
    good = set(connection.execute(query).scalars())
    return [key_id for key_id in key_ids if key_id not in good]
