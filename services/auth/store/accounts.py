"""Stores accounts."""

from collections.abc import Callable

import sqlalchemy as sa

from services.auth.checks import not_found
from services.auth.paging import Position
from services.auth.records.accounts import Account
from services.auth.store import epochs
from services.auth.store.tables import accounts, keys, playground_tokens
from services.chassis.database.records import find_all, get, values_of


def require_account(connection: sa.Connection, account_id: str, *, locks: bool = False) -> Account:
    """Returns an account; raises if there is none."""
    account = get(connection, Account, account_id, locks=locks)
    if account is None:
        raise not_found("account")
    return account


def list_accounts(connection: sa.Connection, after: Position | None, limit: int, wanted: str = "") -> list[Account]:
    """Lists accounts in the order of creation: all, or those with `wanted` in the name or where the id begins."""
    query = sa.select(accounts).order_by(accounts.c.created_at_us, accounts.c.account_id).limit(limit)
    if wanted:
        is_named = accounts.c.name.icontains(wanted, autoescape=True)
        query = query.where(sa.or_(is_named, accounts.c.account_id.istartswith(wanted, autoescape=True)))
    if after is not None:
        query = query.where(behind(accounts.c.created_at_us, accounts.c.account_id, after))
    return find_all(connection, Account, query)


def change_account(connection: sa.Connection, account_id: str, change: Callable[[Account], Account]) -> Account:
    """Applies `change` to the account and returns the result."""
    before = lock_account(connection, account_id)
    after = change(before)
    if after != before:
        connection.execute(
            accounts.update().where(accounts.c.account_id == account_id).values(**values_of(accounts, after))
        )
        of_account = keys.c.account_id == account_id
        tokens = sa.select(playground_tokens.c.token_id).join(keys, keys.c.key_id == playground_tokens.c.key_id)
        tokens = tokens.where(of_account)
        changed = sa.union_all(sa.select(keys.c.key_id).where(of_account), tokens).limit(epochs.LISTED_KEYS_MOST + 1)
        epochs.raise_epoch(connection, connection.execute(changed).scalars().all())
    return after


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
