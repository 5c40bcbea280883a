"""Stores users, and which accounts they belong to."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.checks import not_found
from services.auth.paging import Position
from services.auth.records.users import Member, Membership, User, UserSummary
from services.auth.store.accounts import behind
from services.auth.store.tables import accounts
from services.auth.store.user_tables import (
    memberships,
    oidc_identities,
    passkeys,
    passwords,
    recovery_codes,
    totp,
    users,
)
from services.chassis.access_tokens import AccountRole
from services.chassis.database.records import find_all, get, to_record

# Of UserSummary, in its order. A password counts with its authenticator app.
_WAYS: Final = (
    passkeys,
    recovery_codes,
    sa.select(passwords.c.user_id).join(totp, totp.c.user_id == passwords.c.user_id).subquery(),
    oidc_identities,
)


def require_user(connection: sa.Connection, user_id: str, *, locks: bool = False) -> User:
    """Returns a user; raises if there is none."""
    user = get(connection, User, user_id, locks=locks)
    if user is None:
        raise not_found("user")
    return user


def find_by_email(connection: sa.Connection, email: str, limit: int) -> list[User]:
    """Finds those with this address, the oldest first. It was not verified."""
    query = sa.select(users).where(users.c.email == email, users.c.email != "")
    return find_all(connection, User, query.order_by(users.c.created_at_us).limit(limit))


def has_email(connection: sa.Connection, email: str) -> bool:
    return connection.execute(sa.select(users.c.user_id).where(users.c.email == email).limit(1)).first() is not None


def change_user(connection: sa.Connection, user_id: str, **values: Any) -> None:
    connection.execute(users.update().where(users.c.user_id == user_id).values(**values))


def note_seen(connection: sa.Connection, user_id: str, hour_us: int) -> None:
    is_news = sa.or_(users.c.last_seen_hour_us.is_(None), users.c.last_seen_hour_us < hour_us)
    connection.execute(users.update().where(users.c.user_id == user_id, is_news).values(last_seen_hour_us=hour_us))


def list_users(
    connection: sa.Connection,
    after: Position | None,
    limit: int,
    wanted: str = "",
    *,
    account_id: str = "",
    user_id: str = "",
) -> list[User]:
    """Lists users in the order of creation: all, those with `wanted` in the name, as the whole address or as the
    beginning of the id, the members of an account, or one. Addresses are encrypted, so a part of one finds no user."""
    query = sa.select(users).order_by(users.c.created_at_us, users.c.user_id).limit(limit)
    if wanted:
        is_named = users.c.name.icontains(wanted, autoescape=True)
        has_id = users.c.user_id.istartswith(wanted, autoescape=True)
        query = query.where(sa.or_(is_named, has_id, users.c.email == wanted.lower()))
    if account_id:
        members = sa.select(memberships.c.user_id).where(memberships.c.account_id == account_id)
        query = query.where(users.c.user_id.in_(members))
    if user_id:
        query = query.where(users.c.user_id == user_id)
    if after is not None:
        query = query.where(behind(users.c.created_at_us, users.c.user_id, after))
    return find_all(connection, User, query)


def lock_operators(connection: sa.Connection) -> list[str]:
    """Returns the operators who can sign in, and locks them: none of them can stop being one meanwhile."""
    query = sa.select(users.c.user_id).where(users.c.is_operator, users.c.disabled_at_us.is_(None))
    return list(connection.execute(query.order_by(users.c.user_id).with_for_update()).scalars())


def summarise(connection: sa.Connection, found: Sequence[User]) -> list[UserSummary]:
    """Counts how each of them can sign in."""
    user_ids = [user.user_id for user in found]
    counting = (
        sa.select(sa.literal(number), way.c.user_id, sa.func.count())
        .where(way.c.user_id.in_(user_ids))
        .group_by(way.c.user_id)
        for number, way in enumerate(_WAYS)
    )
    counts = {(row[0], row[1]): row[2] for row in connection.execute(sa.union_all(*counting))}
    return [
        UserSummary(user, *(counts.get((number, user.user_id), 0) for number in range(len(_WAYS)))) for user in found
    ]


def names_of(connection: sa.Connection, user_ids: Sequence[str]) -> dict[str, str]:
    rows = connection.execute(sa.select(users.c.user_id, users.c.name).where(users.c.user_id.in_(set(user_ids))))
    return {row.user_id: row.name for row in rows}


def memberships_of(connection: sa.Connection, user_ids: Sequence[str]) -> list[Membership]:
    """Lists the accounts of users, the oldest membership first."""
    query = (
        sa.select(memberships, accounts.c.name.label("account_name"))
        .add_columns(accounts.c.suspended_at_us.is_not(None).label("is_suspended"))
        .add_columns(accounts.c.closed_at_us.is_not(None).label("is_closed"))
        .join(accounts, accounts.c.account_id == memberships.c.account_id)
        .where(memberships.c.user_id.in_(user_ids))
        .order_by(memberships.c.joined_at_us, memberships.c.account_id)
    )
    return find_all(connection, Membership, query)


def role_in(connection: sa.Connection, account_id: str, user_id: str) -> AccountRole:
    role = connection.scalar(sa.select(memberships.c.role).where(*_is_member(account_id, user_id)))
    return role or AccountRole.NONE


def list_members(connection: sa.Connection, account_id: str, limit: int) -> list[Member]:
    query = (
        sa.select(users, memberships.c.role, memberships.c.joined_at_us)
        .join(memberships, memberships.c.user_id == users.c.user_id)
        .where(memberships.c.account_id == account_id)
        .order_by(memberships.c.joined_at_us, users.c.user_id)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    summaries = summarise(connection, [to_record(User, row) for row in rows])
    return [Member(summary, row.role, row.joined_at_us) for summary, row in zip(summaries, rows, strict=True)]


def count_members(connection: sa.Connection, account_id: str, role: AccountRole = AccountRole.NONE) -> int:
    """Counts those with at least this role; call it with the account locked."""
    query = sa.select(sa.func.count()).where(memberships.c.account_id == account_id, memberships.c.role >= role)
    return int(connection.execute(query).scalar_one())


def add_member(connection: sa.Connection, account_id: str, user_id: str, role: AccountRole, now_us: int) -> None:
    values = {"account_id": account_id, "user_id": user_id, "role": role, "joined_at_us": now_us}
    connection.execute(memberships.insert().values(**values))


def change_role(connection: sa.Connection, account_id: str, user_id: str, role: AccountRole) -> None:
    connection.execute(memberships.update().where(*_is_member(account_id, user_id)).values(role=role))


def remove_member(connection: sa.Connection, account_id: str, user_id: str) -> None:
    connection.execute(memberships.delete().where(*_is_member(account_id, user_id)))


def _is_member(account_id: str, user_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return memberships.c.account_id == account_id, memberships.c.user_id == user_id
