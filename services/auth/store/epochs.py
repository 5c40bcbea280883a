"""The epoch, and which keys changed with it.

Every change that a caller's cache could miss raises the epoch in its own transaction. The epoch is a row, not a
sequence: its lock is held until the commit, so epochs become visible in order and none is seen before its change.
"""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.keys import Peppers
from services.auth.records import Changes, MaintenanceNotice
from services.auth.store.tables import accounts, epoch, key_changes, keys

# How many epochs the list of changes reaches back. Callers ask five times a second: a thousand is minutes of silence
# on the busiest day. Who was away for longer forgets everything and asks again.
HISTORY_EPOCHS: Final = 1_000
# A list longer than this costs more than forgetting everything.
LISTED_KEYS_MOST: Final = 1_000

MAINTENANCE: Final = (
    epoch.c.maintenance_message,
    epoch.c.maintenance_retry_after_s,
    epoch.c.maintenance_started_at_us,
)

_IS_REFUSED: Final = sa.or_(keys.c.revoked_at_us.is_not(None), accounts.c.suspended_at_us.is_not(None))


def raise_epoch(connection: sa.Connection, key_ids: Sequence[str] | None) -> None:
    """Those keys have changed; None: any may have. Where they are too many to be listed, whoever looks is told of a
    gap."""
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


def note_peppers(connection: sa.Connection, noted: str) -> bool:
    """A replica starts with these peppers. Where they are not those of the last one, what callers have learned may no
    longer be so, and they are told to forget it; says whether that is so."""
    if connection.execute(sa.select(epoch.c.peppers).with_for_update()).scalar_one() == noted:
        return False
    connection.execute(epoch.update().values(peppers=noted))
    raise_epoch(connection, None)
    return True


def find_contradicted(connection: sa.Connection, peppers: Peppers) -> list[int]:
    """Versions that other peppers were noted under, where keys that were made with those may still be used."""
    noted = str(connection.execute(sa.select(epoch.c.peppers)).scalar_one())
    contradicted = peppers.contradicted_by(noted)
    query = sa.select(keys.c.pepper_version).distinct()
    query = query.where(keys.c.pepper_version.in_(contradicted), keys.c.revoked_at_us.is_(None))
    return sorted(connection.execute(query).scalars()) if contradicted else []


def changes_since(connection: sa.Connection, since_epoch: int) -> Changes:
    """What a caller who has acted on `since_epoch` has missed; call it on one snapshot."""
    now = connection.execute(sa.select(epoch.c.value, epoch.c.forgotten, *MAINTENANCE)).one()
    maintenance = to_maintenance(now)
    if since_epoch >= now.value:
        return Changes(now.value, maintenance=maintenance)
    if since_epoch < now.forgotten:
        return Changes(now.value, has_gap=True, maintenance=maintenance)
    listed = connection.execute(
        sa.select(keys.c.key_id, _IS_REFUSED.label("is_refused"))
        .distinct()
        .select_from(key_changes)
        .join(keys, keys.c.key_id == key_changes.c.key_id)
        .join(accounts, accounts.c.account_id == keys.c.account_id)
        .where(key_changes.c.epoch > since_epoch)
        .limit(LISTED_KEYS_MOST + 1)
    ).all()
    if len(listed) > LISTED_KEYS_MOST:
        return Changes(now.value, has_gap=True, maintenance=maintenance)
    return Changes(
        now.value,
        maintenance=maintenance,
        key_ids=tuple(row.key_id for row in listed),
        refused_key_ids=tuple(row.key_id for row in listed if row.is_refused),
    )


def to_maintenance(row: Any) -> MaintenanceNotice | None:
    """Of a row that has the columns of MAINTENANCE."""
    if row.maintenance_message is None:
        return None
    return MaintenanceNotice(row.maintenance_message, row.maintenance_retry_after_s, row.maintenance_started_at_us)


def find_refused_keys(connection: sa.Connection, key_ids: Sequence[str]) -> list[str]:
    """Those that are revoked or unknown, or whose account is suspended."""
    query = (
        sa.select(keys.c.key_id)
        .join(accounts, accounts.c.account_id == keys.c.account_id)
        .where(keys.c.key_id.in_(key_ids), sa.not_(_IS_REFUSED))
    )
    good = set(connection.execute(query).scalars())
    return [key_id for key_id in key_ids if key_id not in good]
