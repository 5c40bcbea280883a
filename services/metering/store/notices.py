"""The outbox of notices: written with the charges that give rise to them, kept until auth has them, and then for long
enough that none is written again for the same day or month."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from services.chassis.database.clock import read_now_us
from services.chassis.database.insert import insert_into
from services.metering.ledger.changes import COMMAND_LINE, AccountChange, ChangedBy
from services.metering.ledger.notices import AccountNotice
from services.metering.ledger.records import DAY_US, AccountBalance
from services.metering.store.changes import add_changes
from services.metering.store.sets import insert_rows
from services.metering.store.tables import accounts, notices

# Longer than any month.
KEPT_US: Final = 40 * DAY_US

ADD_NOTICES: Final = insert_rows(notices, AccountNotice.__struct_fields__, "ON CONFLICT (notice_id) DO NOTHING")

_THRESHOLD: Final = sa.select(accounts.c.low_balance_nanos).where(accounts.c.account_id == sa.bindparam("account_id"))


def list_pending_notices(connection: sa.Connection, most: int) -> list[AccountNotice]:
    """Returns those that auth has not acknowledged, the oldest first."""
    columns = [notices.c[name] for name in AccountNotice.__struct_fields__]
    query = sa.select(*columns).where(notices.c.acknowledged_at_us.is_(None)).order_by(notices.c.recorded_at_us)
    return [AccountNotice(*row) for row in connection.execute(query.limit(most))]


def acknowledge_notices(connection: sa.Connection, notice_ids: Sequence[str]) -> None:
    """Marks notices as taken over, and removes those that were long ago."""
    now_us = read_now_us(connection)
    is_pending = notices.c.acknowledged_at_us.is_(None)
    connection.execute(
        notices.update().where(notices.c.notice_id.in_(notice_ids), is_pending).values(acknowledged_at_us=now_us)
    )
    connection.execute(notices.delete().where(notices.c.acknowledged_at_us < now_us - KEPT_US))


def read_threshold(connection: sa.Connection, account_id: str) -> int | None:
    """Returns the account's own threshold; None: it has none."""
    row = connection.execute(_THRESHOLD, {"account_id": account_id}).first()
    return None if row is None else row.low_balance_nanos


def set_threshold(
    connection: sa.Connection, account_id: str, low_balance_nanos: int | None, changed_by: ChangedBy = COMMAND_LINE
) -> None:
    """Changes the threshold alone: a batch never writes it."""
    if low_balance_nanos != read_threshold(connection, account_id):
        now_us = read_now_us(connection)
        add_changes(connection, [AccountChange("low_balance.changed", account_id, "", *changed_by, now_us)])
    row = AccountBalance(account_id)
    statement = insert_into(connection, accounts).values(
        account_id=account_id,
        balance_nanos=row.balance_nanos,
        held_nanos=row.held_nanos,
        has_spend_limits=row.has_spend_limits,
        low_balance_nanos=low_balance_nanos,
    )
    changed = {"low_balance_nanos": low_balance_nanos}
    connection.execute(statement.on_conflict_do_update(index_elements=["account_id"], set_=changed))
