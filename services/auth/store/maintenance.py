"""Stores maintenance in the epoch's row; each change raises the epoch."""

from collections.abc import Callable

import sqlalchemy as sa

from services.auth.records.keys import MaintenanceNotice
from services.auth.store.epochs import MAINTENANCE, raise_epoch, to_maintenance
from services.auth.store.tables import epoch


def read_maintenance(connection: sa.Connection) -> MaintenanceNotice | None:
    return to_maintenance(connection.execute(sa.select(*MAINTENANCE)).one())


def change_maintenance(
    connection: sa.Connection, change: Callable[[MaintenanceNotice | None], MaintenanceNotice | None]
) -> MaintenanceNotice | None:
    """Applies `change` to the maintenance and returns the result."""
    before = to_maintenance(connection.execute(sa.select(*MAINTENANCE).with_for_update()).one())
    after = change(before)
    if after != before:
        connection.execute(
            epoch.update().values(
                maintenance_message=after.message if after else None,
                maintenance_retry_after_s=after.retry_after_s if after else None,
                maintenance_started_at_us=after.started_at_us if after else None,
            )
        )
        # No keys changed.
        raise_epoch(connection, [])
    return after
