"""Stores users and members as operators and owners administer them, and the end of a user, of whom nothing is left but
the id where others name it."""

from typing import Final

import sqlalchemy as sa

from services.auth.core.paging import Position
from services.auth.core.records.users import User
from services.auth.core.store.accounts import behind
from services.auth.core.store.tables import memberships, users
from services.auth.keys.records import Key
from services.auth.keys.store.tables import HAS_SECRET, keys
from services.auth.notices.records import DeliveryState
from services.auth.notices.store.tables import notice_deliveries
from services.auth.people.records import Member
from services.auth.sign_in.store.codes import cancel_invitations
from services.auth.sign_in.store.sessions import end_sessions
from services.auth.sign_in.store.tables import (
    challenges,
    invitations,
    oidc_identities,
    passkeys,
    passwords,
    recovery_codes,
    sign_in_links,
    totp,
)
from services.auth.sign_in.store.ways import summarise
from services.chassis.access_tokens import AccountRole
from services.chassis.database.records import find_all, to_record

_OF_A_USER: Final = (
    passkeys,
    recovery_codes,
    passwords,
    totp,
    oidc_identities,
    sign_in_links,
    challenges,
    memberships,
    users,
)


def has_email(connection: sa.Connection, email: str) -> bool:
    return connection.execute(sa.select(users.c.user_id).where(users.c.email == email).limit(1)).first() is not None


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


def erase_user(connection: sa.Connection, user_id: str) -> int:
    """Erases a user; returns how many sessions ended. Call it with the user's accounts and keys locked."""
    ended = end_sessions(connection, user_id)
    connection.execute(invitations.delete().where(invitations.c.invited_by == user_id))
    is_undone = notice_deliveries.c.state.in_((DeliveryState.PENDING, DeliveryState.FAILED))
    connection.execute(notice_deliveries.delete().where(notice_deliveries.c.recipient_id == user_id, is_undone))
    for table in _OF_A_USER:
        connection.execute(table.delete().where(table.c.user_id == user_id))
    return len(ended)


def end_memberships(connection: sa.Connection, account_id: str) -> list[str]:
    """Ends all memberships of an account that is locked; returns the ids of those who were members."""
    cancel_invitations(connection, account_id)
    ended = memberships.delete().where(memberships.c.account_id == account_id).returning(memberships.c.user_id)
    return sorted(connection.execute(ended).scalars())


def list_keys_made_by(connection: sa.Connection, user_id: str, after: Position | None, limit: int) -> list[Key]:
    """Lists the keys that a user created, in all accounts, the oldest first."""
    order = (keys.c.created_at_us, keys.c.key_id)
    query = sa.select(keys).where(keys.c.created_by == user_id, HAS_SECRET).order_by(*order).limit(limit)
    return find_all(connection, Key, query if after is None else query.where(behind(*order, after)))
