"""Accounts that metering knows: those that ever had credit, a threshold, or an owner who began to pay."""

from typing import Final

import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.changes import Change, to_json
from services.chassis.database.clock import read_now_us
from services.chassis.database.insert import insert_into
from services.metering.credit.records import COMMAND_LINE, AccountBalance, AccountChange, ChangedBy
from services.metering.credit.store.outbox import add_changes
from services.metering.credit.store.tables import accounts

_THRESHOLD: Final = sa.select(accounts.c.low_balance_nanos).where(accounts.c.account_id == sa.bindparam("account_id"))


def has_account(connection: sa.Connection, account_id: str) -> bool:
    return connection.execute(_THRESHOLD, {"account_id": account_id}).first() is not None


def open_account(connection: sa.Connection, account_id: str) -> None:
    """Adds an account without credit, unless it is known."""
    statement = insert_into(connection, accounts).values(**asdict(AccountBalance(account_id)))
    connection.execute(statement.on_conflict_do_nothing(index_elements=["account_id"]))


def read_threshold(connection: sa.Connection, account_id: str) -> int | None:
    """Returns the account's own threshold of low balances; None: it has none."""
    return connection.scalar(_THRESHOLD, {"account_id": account_id})


def set_threshold(
    connection: sa.Connection, account_id: str, low_balance_nanos: int | None, changed_by: ChangedBy = COMMAND_LINE
) -> None:
    """Changes the threshold alone: a batch never writes it."""
    before_nanos = read_threshold(connection, account_id)
    if low_balance_nanos != before_nanos:
        now_us = read_now_us(connection)
        changes_json = to_json([Change("low_balance_nanos", before_nanos, low_balance_nanos)])
        change = AccountChange("low_balance.changed", account_id, "", *changed_by, now_us, changes_json)
        add_changes(connection, [change])
    open_account(connection, account_id)
    is_meant = accounts.c.account_id == account_id
    connection.execute(sa.update(accounts).where(is_meant).values(low_balance_nanos=low_balance_nanos))
