"""Accounts that metering knows: those that ever had credit, a threshold, or an owner who began to pay."""

import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.database.insert import insert_into
from services.metering.ledger.records import AccountBalance
from services.metering.store.tables import accounts


def has_account(connection: sa.Connection, account_id: str) -> bool:
    query = sa.select(sa.literal(1)).where(accounts.c.account_id == account_id)
    return connection.execute(query).first() is not None


def open_account(connection: sa.Connection, account_id: str) -> None:
    """Adds an account without credit, unless it is known."""
    statement = insert_into(connection, accounts).values(**asdict(AccountBalance(account_id)))
    connection.execute(statement.on_conflict_do_nothing(index_elements=["account_id"]))
