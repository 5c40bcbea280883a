"""Stores keys, by their digests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.auth.core import key_format
from services.auth.core.paging import Position
from services.auth.core.peppers import StoredDigest
from services.auth.core.records.accounts import Account
from services.auth.core.store.accounts import behind
from services.auth.core.store.tables import accounts
from services.auth.core.times import HOUR_US
from services.auth.keys.records import Holder, Key, PepperUse, Scope
from services.auth.keys.store import epochs
from services.auth.keys.store.tables import HAS_SECRET, epoch, keys, playground_tokens
from services.chassis.database.records import add, find, find_all, part_of, to_record, values_of

# No secret has this digest, and no pepper this version.
NO_DIGEST: Final = StoredDigest(b"", 0)


def add_key(connection: sa.Connection, key: Key, digest: StoredDigest, form_id: str | None = None) -> None:
    """Adds a key; call it with the account locked. No edge can have cached a new key: the epoch stays."""
    add(connection, key, digest=digest.digest, form_id=form_id)


def add_key_without_secret(
    connection: sa.Connection, account_id: str, name: str, scopes: tuple[Scope, ...], now_us: int, **others: Any
) -> Key:
    """Adds what requests are counted under that come without a key, and returns it; call it with the account locked."""
    key = Key(
        key_id=key_format.mint().key_id,
        account_id=account_id,
        name=name,
        scopes=scopes,
        created_at_us=now_us,
        expires_at_us=None,
        revoked_at_us=None,
        pepper_version=NO_DIGEST.pepper_version,
        **others,
    )
    add_key(connection, key, NO_DIGEST)
    return key


class KeyChoice(NamedTuple):
    """A choice of an account's keys: by default all that have a secret, the oldest first."""

    with_playground: bool = False
    with_callers: bool = False
    # A part of the name, in capitals or not, or the beginning of the id.
    search: str = ""
    # Those that are neither revoked nor expired at a time.
    active_at_us: int | None = None
    created_by: str = ""
    # Those that were never used.
    never_used: bool = False
    # Those that were made before a time, and not used since.
    unused_since_us: int | None = None
    newest_first: bool = False


ALL_KEYS: Final = KeyChoice()


def list_keys(
    connection: sa.Connection, account_id: str, after: Position | None, limit: int, choice: KeyChoice = ALL_KEYS
) -> list[Key]:
    """Lists an account's keys."""
    order = (keys.c.created_at_us, keys.c.key_id)
    query = sa.select(keys).where(keys.c.account_id == account_id).limit(limit)
    query = query.order_by(*(column.desc() for column in order) if choice.newest_first else order)
    if not choice.with_playground:
        query = query.where(sa.or_(HAS_SECRET, keys.c.playground_user_id.is_(None)))
    if not choice.with_callers:
        query = query.where(sa.or_(HAS_SECRET, keys.c.caller_name.is_(None)))
    if choice.search:
        is_named = keys.c.name.icontains(choice.search, autoescape=True)
        query = query.where(sa.or_(is_named, keys.c.key_id.istartswith(choice.search, autoescape=True)))
    if choice.active_at_us is not None:
        query = query.where(*_is_active(choice.active_at_us))
    if choice.created_by:
        query = query.where(keys.c.created_by == choice.created_by)
    if choice.never_used:
        query = query.where(keys.c.last_used_hour_us.is_(None))
    if choice.unused_since_us is not None:
        # The hour of the last use may have been used to its end.
        last_used_before_us = choice.unused_since_us - HOUR_US
        is_unused = sa.or_(keys.c.last_used_hour_us.is_(None), keys.c.last_used_hour_us <= last_used_before_us)
        query = query.where(keys.c.created_at_us <= choice.unused_since_us, is_unused)
    if after is not None:
        query = query.where(behind(*order, after, newest_first=choice.newest_first))
    return find_all(connection, Key, query)


def names_like(connection: sa.Connection, account_id: str, beginning: str) -> set[str]:
    """Returns the names of an account's keys that begin so."""
    is_like = keys.c.name.startswith(beginning, autoescape=True)
    return set(connection.scalars(sa.select(keys.c.name).where(keys.c.account_id == account_id, is_like)))


def _is_active(now_us: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Builds the conditions for a key that is neither revoked nor expired."""
    return keys.c.revoked_at_us.is_(None), sa.or_(keys.c.expires_at_us.is_(None), keys.c.expires_at_us > now_us)


def find_keys(connection: sa.Connection, account_id: str, key_ids: Sequence[str]) -> list[Key]:
    """Returns those of these keys that an account has, with a secret or not; in no order."""
    # By their ids alone: SQLite would rather read all keys of the account.
    found = find_all(connection, Key, sa.select(keys).where(keys.c.key_id.in_(key_ids)))
    return [key for key in found if key.account_id == account_id]


def list_expired(
    connection: sa.Connection, account_id: str, since_us: int, now_us: int, limit: int, created_by: str = ""
) -> list[Key]:
    """Lists an account's keys that expired since then and were used since then, and are not revoked; the last to expire
    first."""
    is_expired = sa.and_(keys.c.expires_at_us > since_us, keys.c.expires_at_us <= now_us)
    is_missed = sa.and_(keys.c.last_used_hour_us > since_us, keys.c.revoked_at_us.is_(None))
    query = sa.select(keys).where(keys.c.account_id == account_id, is_expired, is_missed, HAS_SECRET)
    if created_by:
        query = query.where(keys.c.created_by == created_by)
    return find_all(connection, Key, query.order_by(keys.c.expires_at_us.desc(), keys.c.key_id).limit(limit))


def find_successor(connection: sa.Connection, key_id: str) -> Key | None:
    """Returns the first key that was made to replace another."""
    query = sa.select(keys).where(keys.c.replaces_key_id == key_id)
    return find(connection, Key, query.order_by(keys.c.created_at_us, keys.c.key_id).limit(1))


def find_key_of_form(connection: sa.Connection, account_id: str, form_id: str) -> Key | None:
    """Returns the key that a form has created; call it with the account locked."""
    return find(connection, Key, sa.select(keys).where(keys.c.account_id == account_id, keys.c.form_id == form_id))


def lock_key(connection: sa.Connection, key_id: str) -> Key | None:
    """Locks a key until the commit; call it with its account locked. None: there is none, or it has no secret."""
    query = sa.select(keys).where(keys.c.key_id == key_id, HAS_SECRET)
    return find(connection, Key, query, locks=True)


def put_key(connection: sa.Connection, before: Key, after: Key) -> None:
    """Stores a change of a key that is locked."""
    if after != before:
        connection.execute(keys.update().where(keys.c.key_id == after.key_id).values(**values_of(keys, after)))
        epochs.raise_epoch(connection, [after.key_id])


def lock_keys_made_by(connection: sa.Connection, account_id: str, user_id: str) -> list[str]:
    """Returns the ids of a user's keys in an account that are not revoked and have a secret. Call it with the
    account locked: then there are no further ones."""
    is_theirs = sa.and_(keys.c.account_id == account_id, keys.c.created_by == user_id)
    query = sa.select(keys.c.key_id).where(is_theirs, keys.c.revoked_at_us.is_(None), HAS_SECRET)
    return list(connection.execute(query.order_by(keys.c.key_id).with_for_update()).scalars())


def revoke_keys(connection: sa.Connection, key_ids: Sequence[str], now_us: int) -> None:
    """Revokes keys that are locked."""
    if key_ids:
        revoke = keys.update().where(keys.c.key_id == sa.bindparam("revoked_id")).values(revoked_at_us=now_us)
        connection.execute(revoke, [{"revoked_id": key_id} for key_id in key_ids])
        epochs.raise_epoch(connection, key_ids)


def find_holder(connection: sa.Connection, key_id: str, *, is_token: bool = False) -> tuple[Holder | None, int]:
    """Returns the holder of a key or playground token, and the epoch, read by one statement: neither is older than the
    other."""
    if is_token:
        return _find_holder(connection, keys.c.key_id == playground_tokens.c.key_id, key_id)
    return _find_holder(connection, sa.and_(keys.c.key_id == key_id, HAS_SECRET))


def find_holder_of_caller(connection: sa.Connection, caller: str, account_id: str) -> tuple[Holder | None, int]:
    """Returns the holder of an internal caller's key in an account, and the epoch, read by one statement."""
    return _find_holder(connection, sa.and_(keys.c.caller_name == caller, keys.c.account_id == account_id))


def _find_holder(
    connection: sa.Connection, is_key: sa.ColumnElement[bool], token_id: str = ""
) -> tuple[Holder | None, int]:
    query = (
        sa.select(epoch, playground_tokens, keys, accounts)
        .select_from(epoch)
        .outerjoin(playground_tokens, playground_tokens.c.token_id == token_id)
        .outerjoin(keys, is_key)
        .outerjoin(accounts, accounts.c.account_id == keys.c.account_id)
    )
    row = connection.execute(query).one()
    in_key, in_token = part_of(row, keys), part_of(row, playground_tokens)
    if in_key.key_id is None:
        return None, row.value
    is_token = in_token.token_id is not None
    key, account = to_record(Key, in_key), to_record(Account, part_of(row, accounts))
    if is_token:
        key = replace(key, expires_at_us=in_token.expires_at_us)
    allowed_classes = key.allowed_classes.within(account.allowed_classes)
    holder = Holder(
        key=key,
        digest=to_record(StoredDigest, in_token if is_token else in_key),
        preferred_class=allowed_classes.auto_class(account.preferred_class),
        allowed_classes=allowed_classes,
        limits=key.limits.or_else(account.limits),
        is_suspended=account.suspended_at_us is not None,
        grounding=account.grounding,
        recorded_peppers=row.peppers,
        token_id=in_token.token_id if is_token else "",
        maintenance=epochs.to_maintenance(row),
    )
    return holder, row.value


def record_uses(connection: sa.Connection, key_ids: Sequence[str], hour_us: int) -> None:
    """Records that these keys were accepted in this hour. A later hour is never overwritten by an earlier one."""
    is_news = sa.or_(keys.c.last_used_hour_us.is_(None), keys.c.last_used_hour_us < hour_us)
    # Locked in a fixed order: replicas that record the same keys would otherwise deadlock.
    found = sa.select(keys.c.key_id).where(keys.c.key_id.in_(key_ids), is_news).order_by(keys.c.key_id)
    connection.execute(
        keys.update().where(keys.c.key_id.in_(found.with_for_update()), is_news).values(last_used_hour_us=hour_us)
    )


def count_by_pepper(connection: sa.Connection, now_us: int) -> list[PepperUse]:
    """Counts the valid keys by pepper version, the oldest first."""
    query = (
        sa.select(keys.c.pepper_version, sa.func.count().label("keys"))
        .add_columns(sa.func.max(keys.c.last_used_hour_us).label("last_used_hour_us"))
        .where(*_is_active(now_us), HAS_SECRET)
        .group_by(keys.c.pepper_version)
        .order_by(keys.c.pepper_version)
    )
    return find_all(connection, PepperUse, query)
