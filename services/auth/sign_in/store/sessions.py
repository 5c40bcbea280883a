"""Stores sessions, by the digests of their tokens."""

from collections.abc import Sequence

import sqlalchemy as sa

from services.auth.core.records.users import UserSession
from services.auth.core.store.tables import sessions
from services.auth.keys.store.playground import end_tokens
from services.auth.keys.store.tables import playground_tokens
from services.chassis.database.records import add, find, find_all


def add_session(connection: sa.Connection, session: UserSession, digest: bytes, oldest_us: int) -> None:
    """Adds a session, and removes those of before `oldest_us`, which have all ended."""
    old = sessions.c.created_at_us < oldest_us
    end_tokens(connection, playground_tokens.c.session_id.in_(sa.select(sessions.c.session_id).where(old)))
    connection.execute(sessions.delete().where(old))
    add(connection, session, digest=digest)


def find_session(
    connection: sa.Connection, digests: Sequence[bytes], now_us: int, *, locks: bool = False
) -> UserSession | None:
    """Finds a session by the digests of its token, or of the one that was just replaced."""
    is_previous = sa.and_(sessions.c.previous_digest.in_(digests), sessions.c.previous_until_us > now_us)
    query = sa.select(sessions).where(sa.or_(sessions.c.digest.in_(digests), is_previous))
    return find(connection, UserSession, query, locks=locks)


def list_sessions(connection: sa.Connection, user_id: str) -> list[UserSession]:
    query = sa.select(sessions).where(sessions.c.user_id == user_id)
    return find_all(connection, UserSession, query.order_by(sessions.c.created_at_us.desc()))


def change_session(connection: sa.Connection, session_id: str, **values: object) -> None:
    connection.execute(sessions.update().where(sessions.c.session_id == session_id).values(**values))


def replace_token(
    connection: sa.Connection, session_id: str, before: Sequence[bytes], digest: bytes, previous_until_us: int
) -> bool:
    """Replaces a token whose replacement is due; False if another call has just done it."""
    is_it = sa.and_(sessions.c.session_id == session_id, sessions.c.digest.in_(before), sessions.c.replace_due)
    values = {"previous_digest": sessions.c.digest, "previous_until_us": previous_until_us}
    changed = connection.execute(
        sessions.update().where(is_it).values(digest=digest, replace_due=False, **values).returning(sessions.c.user_id)
    )
    return changed.first() is not None


def request_new_tokens(connection: sa.Connection, user_id: str) -> None:
    connection.execute(sessions.update().where(sessions.c.user_id == user_id).values(replace_due=True))


def end_sessions(
    connection: sa.Connection, user_id: str, session_ids: Sequence[str] | None = None, *, other_than: str = ""
) -> list[str]:
    """Ends sessions of a user, and their playground tokens; None: all of them."""
    query = sa.select(sessions.c.session_id).where(sessions.c.user_id == user_id, sessions.c.session_id != other_than)
    if session_ids is not None:
        query = query.where(sessions.c.session_id.in_(session_ids))
    # Locked before their tokens are read: one that is being created is seen then, or not created.
    ended = list(connection.execute(query.order_by(sessions.c.session_id).with_for_update()).scalars())
    end_tokens(connection, playground_tokens.c.session_id.in_(ended))
    connection.execute(sessions.delete().where(sessions.c.session_id.in_(ended)))
    return ended
