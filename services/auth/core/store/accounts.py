"""Finds and locks accounts."""

import sqlalchemy as sa

from services.auth.core.checks import not_found
from services.auth.core.paging import Position
from services.auth.core.records.accounts import Account
from services.chassis.database.records import get


def require_account(connection: sa.Connection, account_id: str, *, locks: bool = False) -> Account:
    """Returns an account; raises if there is none."""
    account = get(connection, Account, account_id, locks=locks)
    if account is None:
        raise not_found("account")
    return account


def lock_account(connection: sa.Connection, account_id: str) -> Account:
    """Locks an account until the commit: no other transaction can change it or add a key or playground token to it.
    Raises if there is none.

    A key that is added while its account changes would be missing from the list of changed keys, and could stay cached
    with the account's previous settings.
    """
    return require_account(connection, account_id, locks=True)


def behind(
    created_at_us: sa.Column[int], id: sa.Column[str], position: Position, *, newest_first: bool = False
) -> sa.ColumnElement[bool]:
    """Builds the condition for what follows a position, in order of creation and then of id, or in the reverse."""
    here, there = sa.tuple_(created_at_us, id), sa.tuple_(sa.literal(position.created_at_us), sa.literal(position.id))
    return here < there if newest_first else here > there
