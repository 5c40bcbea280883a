"""The names of what events are about, as of now: the log itself has ids alone, so that a name which is changed or
deleted is so everywhere."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from services.auth.core.records.audit import AuditEvent
from services.auth.core.store.tables import accounts, users
from services.auth.keys.store.tables import keys
from services.auth.sign_in.store.tables import passkeys

Names = dict[str, str]


def names_of_events(
    connection: sa.Connection, events: Sequence[AuditEvent], within: Collection[str] | None, user_id: str
) -> Names:
    """Returns the names of users who did something, and of objects and accounts. Those of an account's things only if
    it is `within` what the reader may see (None: everything); those of passkeys only if they are the reader's own."""
    shown = events if within is None else [each for each in events if each.account_id in within]
    object_ids, all_object_ids = _objects_of(shown), _objects_of(events)
    user_ids = {each.user_id for each in events} | object_ids
    account_ids = {each.account_id for each in shown} | object_ids
    is_seen = sa.true() if within is None else keys.c.account_id.in_(within)
    is_own = sa.and_(passkeys.c.passkey_id.in_(all_object_ids), passkeys.c.user_id == user_id)
    queries = (
        sa.select(users.c.user_id, users.c.name).where(users.c.user_id.in_(user_ids)),
        sa.select(accounts.c.account_id, accounts.c.name).where(accounts.c.account_id.in_(account_ids)),
        sa.select(keys.c.key_id, keys.c.name).where(keys.c.key_id.in_(object_ids), is_seen),
        sa.select(passkeys.c.passkey_id, passkeys.c.name).where(is_own),
    )
    return {row[0]: row[1] for query in queries for row in connection.execute(query)}


def named_part(object_id: str) -> str:
    """Returns the id of an object, without the count that events of a used passkey have behind it."""
    return object_id.partition("#")[0]


def _objects_of(events: Sequence[AuditEvent]) -> set[str]:
    return {named_part(each.object_id) for each in events}
