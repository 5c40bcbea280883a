"""The outbox of notices, and of changes for the audit log: written with what caused them, kept until auth has them.

Notices are kept for longer, so that none is written again for the same day or month.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

import sqlalchemy as sa
from msgspec.structs import astuple

from services.chassis.database.clock import read_now_us
from services.metering.credit.ledger.notices import AccountNotice
from services.metering.credit.records import DAY_US, AccountChange
from services.metering.credit.store.tables import account_changes, notices
from services.metering.store.sets import insert_rows

# Longer than any month.
KEPT_US: Final = 40 * DAY_US

ADD_NOTICES: Final = insert_rows(notices, AccountNotice.__struct_fields__, "ON CONFLICT (notice_id) DO NOTHING")
_ADD_CHANGES: Final = insert_rows(account_changes, ["change_id", *AccountChange.__struct_fields__])


def add_changes(connection: sa.Connection, changes: Iterable[AccountChange]) -> None:
    _ADD_CHANGES.run(connection, [(f"chg_{uuid4().hex}", *astuple(change)) for change in changes])


def list_pending_notices(connection: sa.Connection, most: int) -> list[AccountNotice]:
    """Returns those that auth has not acknowledged, the oldest first."""
    query = sa.select(notices).where(notices.c.acknowledged_at_us.is_(None)).order_by(notices.c.recorded_at_us)
    return [AccountNotice(*row[:-1]) for row in connection.execute(query.limit(most))]


def list_pending_changes(connection: sa.Connection, most: int) -> list[tuple[str, AccountChange]]:
    """Returns those that auth has not acknowledged with their ids, the oldest first."""
    query = sa.select(account_changes).order_by(account_changes.c.recorded_at_us, account_changes.c.change_id)
    return [(row[0], AccountChange(*row[1:])) for row in connection.execute(query.limit(most))]


def acknowledge_notices(connection: sa.Connection, notice_ids: Sequence[str]) -> None:
    """Marks notices as taken over, and removes those that were long ago."""
    now_us = read_now_us(connection)
    is_pending = notices.c.acknowledged_at_us.is_(None)
    connection.execute(
        notices.update().where(notices.c.notice_id.in_(notice_ids), is_pending).values(acknowledged_at_us=now_us)
    )
    connection.execute(notices.delete().where(notices.c.acknowledged_at_us < now_us - KEPT_US))


def acknowledge_changes(connection: sa.Connection, change_ids: Sequence[str]) -> None:
    connection.execute(account_changes.delete().where(account_changes.c.change_id.in_(change_ids)))
