"""Stores playground tokens, by their digests, and the keys without a secret that their requests are counted under.

An ended token is no longer here. Callers that have cached it learn of that as of a revoked key: its id is among those
that changed, and an unknown id is refused.
"""

import sqlalchemy as sa

from services.auth.keys.records import Key
from services.auth.keys.store import epochs
from services.auth.keys.store.tables import keys, playground_tokens
from services.chassis.database.records import find


def find_playground_key(connection: sa.Connection, account_id: str, user_id: str) -> Key | None:
    """Returns the key of a member's playground; call it with the account locked."""
    query = sa.select(keys).where(keys.c.account_id == account_id, keys.c.playground_user_id == user_id)
    return find(connection, Key, query)


def has_tokens(connection: sa.Connection, key_id: str, session_id: str) -> bool:
    query = sa.select(playground_tokens.c.token_id).where(
        playground_tokens.c.key_id == key_id, playground_tokens.c.session_id == session_id
    )
    return connection.execute(query.limit(1)).first() is not None


def end_tokens(connection: sa.Connection, are_ended: sa.ColumnElement[bool]) -> None:
    """Ends tokens, and has callers told: the next heartbeat names them."""
    ended = playground_tokens.delete().where(are_ended).returning(playground_tokens.c.token_id)
    token_ids = connection.execute(ended).scalars().all()
    if token_ids:
        epochs.raise_epoch(connection, token_ids)


def end_tokens_of_member(connection: sa.Connection, account_id: str, user_id: str) -> None:
    key_ids = sa.select(keys.c.key_id).where(keys.c.account_id == account_id, keys.c.playground_user_id == user_id)
    end_tokens(connection, playground_tokens.c.key_id.in_(key_ids))


def end_all_but_newest(connection: sa.Connection, session_id: str, kept: int) -> None:
    of_session = sa.select(playground_tokens.c.token_id).where(playground_tokens.c.session_id == session_id)
    older = of_session.order_by(playground_tokens.c.created_at_us.desc(), playground_tokens.c.token_id).offset(kept)
    # SQLite knows no offset without a limit.
    end_tokens(connection, playground_tokens.c.token_id.in_(older.limit(epochs.LISTED_KEYS_MOST)))


def forget_expired(connection: sa.Connection, key_id: str, before_us: int) -> None:
    """Removes tokens that expired before, and that no answer can still run with."""
    of_key = playground_tokens.c.key_id == key_id
    connection.execute(playground_tokens.delete().where(of_key, playground_tokens.c.expires_at_us < before_us))
