"""Accounts, keys and the epoch, in SQLite and PostgreSQL alike.

Every change that a caller's cache could miss raises the epoch in its own transaction. The epoch is a row, not a
sequence: its lock is held until the commit, so epochs become visible in order and none is seen before its change.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.keys import StoredDigest
from services.auth.records import Account, Changes, Holder, Key, Position, Scope

# How many epochs the list of changes reaches back. Callers ask five times a second: a thousand is minutes of silence
# on the busiest day. Who was away for longer forgets everything and asks again.
HISTORY_EPOCHS: Final = 1_000
# A list longer than this costs more than forgetting everything.
LISTED_KEYS_MOST: Final = 1_000

metadata = sa.MetaData()

_accounts = sa.Table(
    "accounts",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("preferred_class", sa.Text, nullable=False),
    sa.Column("requests_per_minute", sa.BigInteger),
    sa.Index("accounts_by_age", "created_at_us", "account_id"),
)

_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    # Names with commas between them. None of them means all of them.
    sa.Column("scopes", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("pepper_version", sa.Integer, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("expires_at_us", sa.BigInteger),
    sa.Column("revoked_at_us", sa.BigInteger),
    sa.Index("api_keys_by_age", "account_id", "created_at_us", "key_id"),
)

# One row. Changes up to and including `forgotten` are no longer listed in `key_changes`.
_epoch = sa.Table(
    "epoch",
    metadata,
    sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", sa.BigInteger, nullable=False),
    sa.Column("forgotten", sa.BigInteger, nullable=False),
)

_key_changes = sa.Table(
    "key_changes",
    metadata,
    sa.Column("epoch", sa.BigInteger, primary_key=True),
    sa.Column("key_id", sa.Text, primary_key=True),
)


def add_account(connection: sa.Connection, account: Account) -> None:
    connection.execute(
        _accounts.insert().values(
            account_id=account.account_id,
            name=account.name,
            created_at_us=account.created_at_us,
            preferred_class=account.preferred_class,
            requests_per_minute=account.requests_per_minute,
        )
    )


def find_account(connection: sa.Connection, account_id: str) -> Account | None:
    row = connection.execute(sa.select(_accounts).where(_accounts.c.account_id == account_id)).one_or_none()
    return _to_account(row) if row is not None else None


def list_accounts(connection: sa.Connection, after: Position | None, limit: int) -> list[Account]:
    query = sa.select(_accounts).order_by(_accounts.c.created_at_us, _accounts.c.account_id).limit(limit)
    if after is not None:
        query = query.where(_behind(_accounts.c.created_at_us, _accounts.c.account_id, after))
    return [_to_account(row) for row in connection.execute(query)]


def change_account(connection: sa.Connection, account_id: str, change: Callable[[Account], Account]) -> Account | None:
    """The account as it is now; None when there is none. `change` is given it as it was."""
    before = _lock_account(connection, account_id)
    if before is None:
        return None
    after = change(before)
    if after != before:
        connection.execute(
            _accounts.update()
            .where(_accounts.c.account_id == account_id)
            .values(preferred_class=after.preferred_class, requests_per_minute=after.requests_per_minute)
        )
        key_ids = sa.select(_keys.c.key_id).where(_keys.c.account_id == account_id).limit(LISTED_KEYS_MOST + 1)
        _raise_epoch(connection, connection.execute(key_ids).scalars().all())
    return after


def add_key(connection: sa.Connection, key: Key, digest: StoredDigest) -> bool:
    """False when there is no such account. Nobody has cached a key that is new: the epoch stays."""
    if _lock_account(connection, key.account_id) is None:
        return False
    connection.execute(
        _keys.insert().values(
            key_id=key.key_id,
            account_id=key.account_id,
            name=key.name,
            scopes=",".join(key.scopes),
            digest=digest.digest,
            pepper_version=digest.pepper_version,
            created_at_us=key.created_at_us,
            expires_at_us=key.expires_at_us,
            revoked_at_us=key.revoked_at_us,
        )
    )
    return True


def list_keys(connection: sa.Connection, account_id: str, after: Position | None, limit: int) -> list[Key] | None:
    """None when there is no such account."""
    if find_account(connection, account_id) is None:
        return None
    query = (
        sa.select(_keys)
        .where(_keys.c.account_id == account_id)
        .order_by(_keys.c.created_at_us, _keys.c.key_id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(_behind(_keys.c.created_at_us, _keys.c.key_id, after))
    return [_to_key(row) for row in connection.execute(query)]


def revoke_key(connection: sa.Connection, key_id: str, now_us: int) -> Key | None:
    """The key as it is now; a key that was revoked before keeps its time."""
    revoked = connection.execute(
        _keys.update().where(_keys.c.key_id == key_id, _keys.c.revoked_at_us.is_(None)).values(revoked_at_us=now_us)
    )
    if revoked.rowcount:
        _raise_epoch(connection, [key_id])
    row = connection.execute(sa.select(_keys).where(_keys.c.key_id == key_id)).one_or_none()
    return _to_key(row) if row is not None else None


def find_holder(connection: sa.Connection, key_id: str) -> tuple[Holder | None, int]:
    """Who holds the key, and the epoch, read by one statement: neither is older than the other."""
    query = (
        sa.select(_epoch.c.value, _keys, _accounts.c.preferred_class, _accounts.c.requests_per_minute)
        .select_from(_epoch)
        .outerjoin(_keys, _keys.c.key_id == key_id)
        .outerjoin(_accounts, _accounts.c.account_id == _keys.c.account_id)
    )
    row = connection.execute(query).one()
    if row.key_id is None:
        return None, row.value
    digest = StoredDigest(row.digest, row.pepper_version)
    return Holder(_to_key(row), digest, row.preferred_class, row.requests_per_minute), row.value


def changes_since(connection: sa.Connection, since_epoch: int) -> Changes:
    """What a caller who has acted on `since_epoch` has missed; call it on one snapshot."""
    now = connection.execute(sa.select(_epoch.c.value, _epoch.c.forgotten)).one()
    if since_epoch >= now.value:
        return Changes(now.value)
    if since_epoch < now.forgotten:
        return Changes(now.value, has_gap=True)
    listed = connection.execute(
        sa.select(_key_changes.c.key_id)
        .distinct()
        .where(_key_changes.c.epoch > since_epoch)
        .limit(LISTED_KEYS_MOST + 1)
    )
    key_ids = tuple(listed.scalars())
    if len(key_ids) > LISTED_KEYS_MOST:
        return Changes(now.value, has_gap=True)
    return Changes(now.value, key_ids)


def _lock_account(connection: sa.Connection, account_id: str) -> Account | None:
    """Until the commit nobody else changes the account or adds a key to it.

    A key that were added while its account changes would be missing from the list of the change, and could stay cached
    with what the account had decided before.
    """
    query = sa.select(_accounts).where(_accounts.c.account_id == account_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return _to_account(row) if row is not None else None


def _raise_epoch(connection: sa.Connection, key_ids: Sequence[str]) -> None:
    raised = _epoch.update().values(value=_epoch.c.value + 1).returning(_epoch.c.value, _epoch.c.forgotten)
    epoch, forgotten = connection.execute(raised).one()
    if len(key_ids) > LISTED_KEYS_MOST:
        forgotten = epoch
    else:
        forgotten = max(forgotten, epoch - HISTORY_EPOCHS)
        if key_ids:
            connection.execute(_key_changes.insert(), [{"epoch": epoch, "key_id": key_id} for key_id in key_ids])
    connection.execute(_key_changes.delete().where(_key_changes.c.epoch <= forgotten))
    connection.execute(_epoch.update().values(forgotten=forgotten))


def _behind(created_at_us: sa.Column[int], id: sa.Column[str], position: Position) -> sa.ColumnElement[bool]:
    return sa.or_(
        created_at_us > position.created_at_us,
        sa.and_(created_at_us == position.created_at_us, id > position.id),
    )


def _to_account(row: sa.Row[Any]) -> Account:
    return Account(row.account_id, row.name, row.created_at_us, row.preferred_class, row.requests_per_minute)


def _to_key(row: sa.Row[Any]) -> Key:
    return Key(
        key_id=row.key_id,
        account_id=row.account_id,
        name=row.name,
        scopes=tuple(Scope(name) for name in row.scopes.split(",") if name),
        created_at_us=row.created_at_us,
        expires_at_us=row.expires_at_us,
        revoked_at_us=row.revoked_at_us,
    )
