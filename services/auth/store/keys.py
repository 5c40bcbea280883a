"""Stores keys, by their digests."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.auth.paging import Position
from services.auth.peppers import StoredDigest
from services.auth.records.accounts import GroundingPolicy, KeyLimits
from services.auth.records.keys import Holder, Key, PepperUse
from services.auth.store import epochs
from services.auth.store.rows import to_record, values_of
from services.auth.store.tables import accounts, epoch, keys, playground_tokens


def add_key(connection: sa.Connection, key: Key, digest: StoredDigest, form_id: str | None = None) -> None:
    """Adds a key; call it with the account locked. No edge can have cached a new key: the epoch stays."""
    connection.execute(keys.insert().values(digest=digest.digest, form_id=form_id, **_to_values(key)))


_FIND: Final = sa.select(keys).where(keys.c.key_id == sa.bindparam("key_id"))
_FIND_SUCCESSOR: Final = (
    sa.select(keys)
    .where(keys.c.replaces_key_id == sa.bindparam("key_id"))
    .order_by(keys.c.created_at_us, keys.c.key_id)
    .limit(1)
)


# What LIKE would take for something else than itself.
_ESCAPE: Final = "!"
_ESCAPED: Final = re.compile(r"([%_!])")


class KeyChoice(NamedTuple):
    """A choice of an account's keys: by default all, the oldest first, without those of playgrounds."""

    with_playground: bool = False
    # A part of the name, in capitals or not, or the beginning of the id.
    search: str = ""
    # Those that are neither revoked nor expired at a time.
    active_at_us: int | None = None
    created_by: str = ""
    newest_first: bool = False

    @property
    def values(self) -> dict[str, Any]:
        """Returns the parameters of the query; those that it does not have are ignored."""
        searched = _ESCAPED.sub(rf"{_ESCAPE}\1", self.search)
        return {
            "name_pattern": f"%{searched}%",
            "id_pattern": f"{searched}%",
            "active_at_us": self.active_at_us,
            "created_by": self.created_by,
        }


ALL_KEYS: Final = KeyChoice()


def list_keys(
    connection: sa.Connection, account_id: str, after: Position | None, limit: int, choice: KeyChoice = ALL_KEYS
) -> list[Key]:
    """Lists an account's keys."""
    query = _list_query(
        with_playground=choice.with_playground,
        is_searched=bool(choice.search),
        is_active=choice.active_at_us is not None,
        is_own=bool(choice.created_by),
        newest_first=choice.newest_first,
        is_first=after is None,
    )
    values = {"account_id": account_id, "limit": limit, **choice.values}
    if after is not None:
        values |= {"after_us": after.created_at_us, "after_id": after.id}
    return [to_key(row) for row in connection.execute(query, values)]


# Pages of a console run them: one for each kind of choice is compiled.
@cache
def _list_query(
    *, with_playground: bool, is_searched: bool, is_active: bool, is_own: bool, newest_first: bool, is_first: bool
) -> sa.Select[Any]:
    order = (keys.c.created_at_us, keys.c.key_id)
    query = sa.select(keys).where(keys.c.account_id == sa.bindparam("account_id")).limit(sa.bindparam("limit"))
    query = query.order_by(*(column.desc() for column in order) if newest_first else order)
    if not with_playground:
        # An expression: by the index of playgrounds, SQLite would read and sort all keys of the account.
        query = query.where(sa.func.coalesce(keys.c.playground_user_id, "") == "")
    if is_searched:
        name, id_start = (sa.func.lower(sa.bindparam(each, type_=sa.Text)) for each in ("name_pattern", "id_pattern"))
        query = query.where(
            sa.or_(
                sa.func.lower(keys.c.name).like(name, escape=_ESCAPE),
                sa.func.lower(keys.c.key_id).like(id_start, escape=_ESCAPE),
            )
        )
    if is_active:
        now_us = sa.bindparam("active_at_us", type_=sa.BigInteger)
        query = query.where(
            keys.c.revoked_at_us.is_(None), sa.or_(keys.c.expires_at_us.is_(None), keys.c.expires_at_us > now_us)
        )
    if is_own:
        query = query.where(keys.c.created_by == sa.bindparam("created_by"))
    if not is_first:
        position = sa.tuple_(sa.bindparam("after_us", type_=sa.BigInteger), sa.bindparam("after_id", type_=sa.Text))
        query = query.where(sa.tuple_(*order) < position if newest_first else sa.tuple_(*order) > position)
    return query


def find_keys(connection: sa.Connection, account_id: str, key_ids: Sequence[str]) -> list[Key]:
    """Returns those of these keys that an account has, also of playgrounds; in no order."""
    if not key_ids:
        return []
    # By their ids alone: SQLite would rather read all keys of the account.
    rows = connection.execute(sa.select(keys).where(keys.c.key_id.in_(key_ids)))
    return [to_key(row) for row in rows if row.account_id == account_id]


def find_successor(connection: sa.Connection, key_id: str) -> Key | None:
    """Returns the first key that was made to replace another."""
    row = connection.execute(_FIND_SUCCESSOR, {"key_id": key_id}).first()
    return None if row is None else to_key(row)


def find_key(connection: sa.Connection, key_id: str) -> Key | None:
    row = connection.execute(_FIND, {"key_id": key_id}).first()
    return None if row is None else to_key(row)


def find_key_of_form(connection: sa.Connection, account_id: str, form_id: str) -> Key | None:
    """Returns the key that a form has created; call it with the account locked."""
    query = sa.select(keys).where(keys.c.account_id == account_id, keys.c.form_id == form_id)
    row = connection.execute(query).one_or_none()
    return None if row is None else to_key(row)


def lock_key(connection: sa.Connection, key_id: str) -> Key | None:
    """Locks a key until the commit; call it with its account locked. None: there is none, or it is a playground's."""
    query = sa.select(keys).where(keys.c.key_id == key_id, keys.c.playground_user_id.is_(None)).with_for_update()
    row = connection.execute(query).one_or_none()
    return None if row is None else to_key(row)


def put_key(connection: sa.Connection, before: Key, after: Key) -> None:
    """Stores a change of a key that is locked."""
    if after != before:
        connection.execute(keys.update().where(keys.c.key_id == after.key_id).values(**_to_values(after)))
        epochs.raise_epoch(connection, [after.key_id])


def lock_keys_made_by(connection: sa.Connection, account_id: str, user_id: str) -> list[str]:
    """Returns the ids of a user's keys in an account that are not revoked, without those of playgrounds. Call it with
    the account locked: then there are no further ones."""
    is_theirs = sa.and_(keys.c.account_id == account_id, keys.c.created_by == user_id)
    query = sa.select(keys.c.key_id).where(is_theirs, keys.c.revoked_at_us.is_(None))
    query = query.where(sa.func.coalesce(keys.c.playground_user_id, "") == "").order_by(keys.c.key_id)
    return list(connection.execute(query.with_for_update()).scalars())


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
        has_secret = keys.c.key_id == playground_tokens.c.key_id
    else:
        has_secret = sa.and_(keys.c.key_id == key_id, keys.c.playground_user_id.is_(None))
    query = (
        sa.select(
            epoch.c.value,
            epoch.c.peppers,
            *epochs.MAINTENANCE,
            keys,
            playground_tokens.c.token_id,
            playground_tokens.c.digest.label("token_digest"),
            playground_tokens.c.pepper_version.label("token_pepper_version"),
            playground_tokens.c.expires_at_us.label("token_expires_at_us"),
            accounts.c.preferred_class,
            accounts.c.requests_per_minute.label("account_requests_per_minute"),
            accounts.c.tokens_per_minute.label("account_tokens_per_minute"),
            accounts.c.concurrent_requests.label("account_concurrent_requests"),
            accounts.c.suspended_at_us,
            accounts.c.search,
            accounts.c.memory,
            accounts.c.attachments,
            accounts.c.allowed_classes.label("account_allowed_classes"),
        )
        .select_from(epoch)
        .outerjoin(playground_tokens, playground_tokens.c.token_id == key_id)
        .outerjoin(keys, has_secret)
        .outerjoin(accounts, accounts.c.account_id == keys.c.account_id)
    )
    row = connection.execute(query).one()
    if row.key_id is None:
        return None, row.value
    key, digest = to_key(row), StoredDigest(row.digest, row.pepper_version)
    if is_token:
        key, digest = (
            replace(key, expires_at_us=row.token_expires_at_us),
            StoredDigest(row.token_digest, row.token_pepper_version),
        )
    of_account = KeyLimits(
        row.account_requests_per_minute, row.account_tokens_per_minute, row.account_concurrent_requests
    )
    allowed_classes = key.allowed_classes.within(row.account_allowed_classes)
    holder = Holder(
        key=key,
        digest=digest,
        preferred_class=allowed_classes.auto_class(row.preferred_class),
        allowed_classes=allowed_classes,
        limits=key.limits.or_else(of_account),
        is_suspended=row.suspended_at_us is not None,
        grounding=GroundingPolicy(row.search, row.memory, row.attachments),
        noted_peppers=row.peppers,
        token_id=row.token_id if is_token else "",
        maintenance=epochs.to_maintenance(row),
    )
    return holder, row.value


def note_uses(connection: sa.Connection, key_ids: Sequence[str], hour_us: int) -> None:
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
        sa.select(
            keys.c.pepper_version, sa.func.count().label("keys"), sa.func.max(keys.c.last_used_hour_us).label("last")
        )
        .where(keys.c.revoked_at_us.is_(None), sa.or_(keys.c.expires_at_us.is_(None), keys.c.expires_at_us > now_us))
        .where(keys.c.playground_user_id.is_(None))
        .group_by(keys.c.pepper_version)
        .order_by(keys.c.pepper_version)
    )
    return [PepperUse(row.pepper_version, row[1], row.last) for row in connection.execute(query)]


def _to_values(key: Key) -> dict[str, Any]:
    values = values_of(key)
    return values_of(values.pop("limits")) | values


def to_key(row: sa.Row[Any]) -> Key:
    return to_record(Key, row, limits=to_record(KeyLimits, row))
