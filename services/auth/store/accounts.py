"""Stores accounts."""

from collections.abc import Callable
from typing import Any, Final

import sqlalchemy as sa

from services.auth.paging import Position
from services.auth.records.accounts import Account, ClassAllowance, GroundingPolicy, KeyLimits
from services.auth.store import epochs
from services.auth.store.tables import accounts, keys, playground_tokens


def add_account(connection: sa.Connection, account: Account) -> None:
    values = {"created_at_us": account.created_at_us, **_to_values(account)}
    connection.execute(accounts.insert().values(account_id=account.account_id, **values))


_FIND: Final = sa.select(accounts).where(accounts.c.account_id == sa.bindparam("account_id"))


def find_account(connection: sa.Connection, account_id: str) -> Account | None:
    row = connection.execute(_FIND, {"account_id": account_id}).first()
    return _to_account(row) if row is not None else None


def list_accounts(connection: sa.Connection, after: Position | None, limit: int, wanted: str = "") -> list[Account]:
    """Lists accounts in the order of creation: all, or those with `wanted` in the name or where the id begins."""
    query = sa.select(accounts).order_by(accounts.c.created_at_us, accounts.c.account_id).limit(limit)
    if wanted:
        is_named = accounts.c.name.icontains(wanted, autoescape=True)
        query = query.where(sa.or_(is_named, accounts.c.account_id.istartswith(wanted, autoescape=True)))
    if after is not None:
        query = query.where(behind(accounts.c.created_at_us, accounts.c.account_id, after))
    return [_to_account(row) for row in connection.execute(query)]


def change_account(connection: sa.Connection, account_id: str, change: Callable[[Account], Account]) -> Account | None:
    """Applies `change` to the account and returns the result; None if there is no such account."""
    before = lock_account(connection, account_id)
    if before is None:
        return None
    after = change(before)
    if after != before:
        connection.execute(accounts.update().where(accounts.c.account_id == account_id).values(**_to_values(after)))
        of_account = keys.c.account_id == account_id
        tokens = sa.select(playground_tokens.c.token_id).join(keys, keys.c.key_id == playground_tokens.c.key_id)
        tokens = tokens.where(of_account)
        changed = sa.union_all(sa.select(keys.c.key_id).where(of_account), tokens).limit(epochs.LISTED_KEYS_MOST + 1)
        epochs.raise_epoch(connection, connection.execute(changed).scalars().all())
    return after


def lock_account(connection: sa.Connection, account_id: str) -> Account | None:
    """Locks an account until the commit: nobody else can change it or add a key or playground token to it.

    A key that is added while its account changes would be missing from the list of changed keys, and could stay cached
    with the account's previous settings.
    """
    query = sa.select(accounts).where(accounts.c.account_id == account_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return _to_account(row) if row is not None else None


def behind(created_at_us: sa.Column[int], id: sa.Column[str], position: Position) -> sa.ColumnElement[bool]:
    """Builds the condition for what follows a position, in order of creation and then of id."""
    return sa.or_(
        created_at_us > position.created_at_us,
        sa.and_(created_at_us == position.created_at_us, id > position.id),
    )


def _to_values(account: Account) -> dict[str, Any]:
    """Returns the columns that may change."""
    return {
        "name": account.name,
        "preferred_class": account.preferred_class,
        "requests_per_minute": account.limits.requests_per_minute,
        "tokens_per_minute": account.limits.tokens_per_minute,
        "concurrent_requests": account.limits.concurrent_requests,
        "suspended_at_us": account.suspended_at_us,
        "search": account.grounding.search,
        "memory": account.grounding.memory,
        "attachments": account.grounding.attachments,
        "allowed_classes": from_allowance(account.allowed_classes),
    }


def from_allowance(allowance: ClassAllowance) -> str | None:
    return None if allowance.class_ids is None else ",".join(allowance.class_ids)


def to_allowance(text: str | None) -> ClassAllowance:
    return ClassAllowance(None if text is None else tuple(name for name in text.split(",") if name))


def _to_account(row: sa.Row[Any]) -> Account:
    return Account(
        account_id=row.account_id,
        name=row.name,
        created_at_us=row.created_at_us,
        preferred_class=row.preferred_class,
        limits=KeyLimits(row.requests_per_minute, row.tokens_per_minute, row.concurrent_requests),
        suspended_at_us=row.suspended_at_us,
        grounding=GroundingPolicy(row.search, row.memory, row.attachments),
        allowed_classes=to_allowance(row.allowed_classes),
    )
