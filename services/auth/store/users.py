"""Stores users, and which accounts they belong to."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.checks import not_found
from services.auth.paging import Position
from services.auth.records.users import Member, Membership, User, UserSummary
from services.auth.store.accounts import behind
from services.auth.store.rows import to_record, values_of
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

# Of UserSummary, in its order. A password counts with its authenticator app.
_WAYS: Final = (
    passkeys,
    recovery_codes,
    sa.select(passwords.c.user_id).join(totp, totp.c.user_id == passwords.c.user_id).subquery(),
    oidc_identities,
)

# Built once: every page of a console runs them, and to build them takes longer than to run them.
_ONE: Final[sa.BindParameter[Any]] = sa.bindparam("user_id")
_USER: Final = sa.select(users).where(users.c.user_id == _ONE)
_FIND_ROLE: Final = sa.select(memberships.c.role).where(
    memberships.c.account_id == sa.bindparam("account_id"), memberships.c.user_id == _ONE
)
_MEMBERS: Final = (
    sa.select(users, memberships.c.role, memberships.c.joined_at_us)
    .join(memberships, memberships.c.user_id == users.c.user_id)
    .where(memberships.c.account_id == sa.bindparam("account_id"))
    .order_by(memberships.c.joined_at_us, users.c.user_id)
    .limit(sa.bindparam("limit"))
)
_SOME: Final[sa.BindParameter[Any]] = sa.bindparam("user_ids", expanding=True)
_NAMES: Final = sa.select(users.c.user_id, users.c.name).where(users.c.user_id.in_(_SOME))
_COUNT_WAYS: Final = sa.union_all(
    *(
        sa.select(sa.literal(number), way.c.user_id, sa.func.count())
        .where(way.c.user_id.in_(_SOME))
        .group_by(way.c.user_id)
        for number, way in enumerate(_WAYS)
    )
)
_MEMBERSHIPS: Final = (
    sa.select(memberships, accounts.c.name, accounts.c.suspended_at_us)
    .join(accounts, accounts.c.account_id == memberships.c.account_id)
    .where(memberships.c.user_id.in_(_SOME))
    .order_by(memberships.c.joined_at_us, memberships.c.account_id)
)


def add_user(connection: sa.Connection, user: User) -> None:
    connection.execute(users.insert().values(**values_of(user)))


def find_user(connection: sa.Connection, user_id: str, *, locks: bool = False) -> User | None:
    query = _USER.with_for_update() if locks else _USER
    row = connection.execute(query, {"user_id": user_id}).one_or_none()
    return None if row is None else to_record(User, row)


def require_user(connection: sa.Connection, user_id: str, *, locks: bool = False) -> User:
    """Returns a user; raises if there is none."""
    user = find_user(connection, user_id, locks=locks)
    if user is None:
        raise not_found("user")
    return user


def find_by_email(connection: sa.Connection, email: str, limit: int) -> list[User]:
    """Finds those with this address, the oldest first. It was not verified."""
    query = sa.select(users).where(users.c.email == email, users.c.email != "")
    return [to_record(User, row) for row in connection.execute(query.order_by(users.c.created_at_us).limit(limit))]


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
    return [to_record(User, row) for row in connection.execute(query)]


def lock_operators(connection: sa.Connection) -> list[str]:
    """Returns the operators who can sign in, and locks them: none of them can stop being one meanwhile."""
    query = sa.select(users.c.user_id).where(users.c.is_operator, users.c.disabled_at_us.is_(None))
    return list(connection.execute(query.order_by(users.c.user_id).with_for_update()).scalars())


def summarise(connection: sa.Connection, found: Sequence[User]) -> list[UserSummary]:
    """Counts how each of them can sign in."""
    user_ids = [user.user_id for user in found]
    counts = {(row[0], row[1]): row[2] for row in connection.execute(_COUNT_WAYS, {"user_ids": user_ids})}
    return [
        UserSummary(user, *(counts.get((number, user.user_id), 0) for number in range(len(_WAYS)))) for user in found
    ]


def names_of(connection: sa.Connection, user_ids: Sequence[str]) -> dict[str, str]:
    # Empty: the command line.
    wanted = set(user_ids) - {""}
    rows = connection.execute(_NAMES, {"user_ids": list(wanted)}).all() if wanted else []
    return {row.user_id: row.name for row in rows}


def memberships_of(connection: sa.Connection, user_ids: Sequence[str]) -> list[Membership]:
    """Lists the accounts of users, the oldest membership first."""
    return [
        to_record(Membership, row, account_name=row.name, is_suspended=row.suspended_at_us is not None)
        for row in connection.execute(_MEMBERSHIPS, {"user_ids": user_ids})
    ]


def role_in(connection: sa.Connection, account_id: str, user_id: str) -> AccountRole:
    row = connection.execute(_FIND_ROLE, {"account_id": account_id, "user_id": user_id}).first()
    return AccountRole.NONE if row is None else row.role


def list_members(connection: sa.Connection, account_id: str, limit: int) -> list[Member]:
    rows = connection.execute(_MEMBERS, {"account_id": account_id, "limit": limit}).all()
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
    is_it = sa.and_(memberships.c.account_id == account_id, memberships.c.user_id == user_id)
    connection.execute(memberships.update().where(is_it).values(role=role))


def remove_member(connection: sa.Connection, account_id: str, user_id: str) -> None:
    is_it = sa.and_(memberships.c.account_id == account_id, memberships.c.user_id == user_id)
    connection.execute(memberships.delete().where(is_it))
