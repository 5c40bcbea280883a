"""The outbox of changes for the audit log: written with the change itself, kept until auth has them."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

import sqlalchemy as sa
from msgspec.structs import astuple

from services.metering.ledger.changes import AccountChange
from services.metering.store.sets import insert_rows
from services.metering.store.tables import account_changes

_COLUMNS: Final = ("change_id", *AccountChange.__struct_fields__)
_ADD: Final = insert_rows(account_changes, _COLUMNS)


def add_changes(connection: sa.Connection, changes: Iterable[AccountChange]) -> None:
    _ADD.run(connection, [(f"chg_{uuid4().hex}", *astuple(change)) for change in changes])


def list_pending_changes(connection: sa.Connection, most: int) -> list[tuple[str, AccountChange]]:
    """Returns those that auth has not acknowledged with their ids, the oldest first."""
    columns = [account_changes.c[name] for name in _COLUMNS]
    query = sa.select(*columns).order_by(account_changes.c.recorded_at_us, account_changes.c.change_id).limit(most)
    return [(row[0], AccountChange(*row[1:])) for row in connection.execute(query)]


def acknowledge_changes(connection: sa.Connection, change_ids: Sequence[str]) -> None:
    connection.execute(account_changes.delete().where(account_changes.c.change_id.in_(change_ids)))
