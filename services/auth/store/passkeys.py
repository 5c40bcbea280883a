"""Stores passkeys."""

from typing import Final

import sqlalchemy as sa

from services.auth.records.users import Passkey
from services.auth.store.rows import to_record, values_of
from services.auth.store.user_tables import passkeys

_LIST: Final = (
    sa.select(passkeys)
    .where(passkeys.c.user_id == sa.bindparam("user_id"))
    .order_by(passkeys.c.created_at_us, passkeys.c.passkey_id)
)


def add_passkey(connection: sa.Connection, passkey: Passkey) -> None:
    connection.execute(passkeys.insert().values(**values_of(passkey)))


def find_by_credential(connection: sa.Connection, credential_id: bytes, *, locks: bool = False) -> Passkey | None:
    """Finds a passkey; to lock it, call this with its user locked."""
    query = sa.select(passkeys).where(passkeys.c.credential_id == credential_id)
    row = connection.execute(query.with_for_update() if locks else query).one_or_none()
    return None if row is None else to_record(Passkey, row)


def list_passkeys(connection: sa.Connection, user_id: str) -> list[Passkey]:
    return [to_record(Passkey, row) for row in connection.execute(_LIST, {"user_id": user_id})]


def note_use(connection: sa.Connection, passkey_id: str, sign_count: int, hour_us: int, *, is_backed_up: bool) -> None:
    values = {"sign_count": sign_count, "last_used_hour_us": hour_us, "is_backed_up": is_backed_up}
    connection.execute(passkeys.update().where(passkeys.c.passkey_id == passkey_id).values(**values))


def rename_passkey(connection: sa.Connection, user_id: str, passkey_id: str, name: str) -> Passkey | None:
    is_it = sa.and_(passkeys.c.user_id == user_id, passkeys.c.passkey_id == passkey_id)
    row = connection.execute(passkeys.update().where(is_it).values(name=name).returning(*passkeys.c)).one_or_none()
    return None if row is None else to_record(Passkey, row)


def remove_passkey(connection: sa.Connection, user_id: str, passkey_id: str) -> None:
    is_it = sa.and_(passkeys.c.user_id == user_id, passkeys.c.passkey_id == passkey_id)
    connection.execute(passkeys.delete().where(is_it))
