"""Finds and changes users, and which accounts they belong to."""

from collections.abc import Sequence

import sqlalchemy as sa

from services.auth.core.checks import not_found
from services.auth.core.records.users import Membership, User
from services.auth.core.store.tables import accounts, memberships, users
from services.chassis.access_tokens import AccountRole
from services.chassis.database.records import find_all, get


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


def change_user(connection: sa.Connection, user_id: str, **values: object) -> None:
    connection.execute(users.update().where(users.c.user_id == user_id).values(**values))


def record_seen(connection: sa.Connection, user_id: str, hour_us: int) -> None:
    is_news = sa.or_(users.c.last_seen_hour_us.is_(None), users.c.last_seen_hour_us < hour_us)
    connection.execute(users.update().where(users.c.user_id == user_id, is_news).values(last_seen_hour_us=hour_us))


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


def add_member(connection: sa.Connection, account_id: str, user_id: str, role: AccountRole, now_us: int) -> None:
    values = {"account_id": account_id, "user_id": user_id, "role": role, "joined_at_us": now_us}
    connection.execute(memberships.insert().values(**values))


def change_role(connection: sa.Connection, account_id: str, user_id: str, role: AccountRole) -> None:
    connection.execute(memberships.update().where(*_is_member(account_id, user_id)).values(role=role))


def remove_member(connection: sa.Connection, account_id: str, user_id: str) -> None:
    connection.execute(memberships.delete().where(*_is_member(account_id, user_id)))


def _is_member(account_id: str, user_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return memberships.c.account_id == account_id, memberships.c.user_id == user_id
