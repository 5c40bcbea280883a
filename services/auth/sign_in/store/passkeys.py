"""Stores passkeys."""

import sqlalchemy as sa

from services.auth.sign_in.records import Passkey
from services.auth.sign_in.store.tables import passkeys
from services.chassis.database.records import find, find_all


def find_by_credential(connection: sa.Connection, credential_id: bytes, *, locks: bool = False) -> Passkey | None:
    """Finds a passkey; to lock it, call this with its user locked."""
    query = sa.select(passkeys).where(passkeys.c.credential_id == credential_id)
    return find(connection, Passkey, query, locks=locks)


def list_passkeys(connection: sa.Connection, user_id: str) -> list[Passkey]:
    query = sa.select(passkeys).where(passkeys.c.user_id == user_id)
    return find_all(connection, Passkey, query.order_by(passkeys.c.created_at_us, passkeys.c.passkey_id))


def record_use(
    connection: sa.Connection, passkey_id: str, sign_count: int, hour_us: int, *, is_backed_up: bool
) -> None:
    values = {"sign_count": sign_count, "last_used_hour_us": hour_us, "is_backed_up": is_backed_up}
    connection.execute(passkeys.update().where(passkeys.c.passkey_id == passkey_id).values(**values))


def raise_sign_count(connection: sa.Connection, passkey_id: str, sign_count: int) -> None:
    is_lower = sa.and_(passkeys.c.passkey_id == passkey_id, passkeys.c.sign_count < sign_count)
    connection.execute(passkeys.update().where(is_lower).values(sign_count=sign_count))


def rename_passkey(connection: sa.Connection, user_id: str, passkey_id: str, name: str) -> Passkey | None:
    is_it = sa.and_(passkeys.c.user_id == user_id, passkeys.c.passkey_id == passkey_id)
    return find(connection, Passkey, passkeys.update().where(is_it).values(name=name).returning(*passkeys.c))


def remove_passkey(connection: sa.Connection, user_id: str, passkey_id: str) -> bool:
    is_it = sa.and_(passkeys.c.user_id == user_id, passkeys.c.passkey_id == passkey_id)
    return connection.execute(passkeys.delete().where(is_it)).rowcount == 1
