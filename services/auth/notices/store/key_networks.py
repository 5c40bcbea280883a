"""Stores digests of the networks that keys were used from."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from services.auth.core.store.tables import accounts
from services.auth.keys.store.tables import HAS_SECRET, keys
from services.auth.notices.store.tables import key_networks
from services.chassis.database.insert import insert_into


def find_keys(connection: sa.Connection, key_ids: Collection[str]) -> Sequence[Any]:
    """Returns those of these keys that have a secret."""
    query = (
        sa.select(keys.c.key_id, keys.c.account_id, keys.c.name, accounts.c.suspended_at_us)
        .join(accounts, accounts.c.account_id == keys.c.account_id)
        .where(keys.c.key_id.in_(key_ids), HAS_SECRET)
    )
    return connection.execute(query).all()


def list_networks(connection: sa.Connection, key_ids: Collection[str]) -> Sequence[Any]:
    return connection.execute(sa.select(key_networks).where(key_networks.c.key_id.in_(key_ids))).all()


def add_network(connection: sa.Connection, key_id: str, digest: bytes, pepper_version: int, now_us: int) -> bool:
    """Adds a network; False if another replica has added it meanwhile."""
    values = {
        "key_id": key_id,
        "digest": digest,
        "pepper_version": pepper_version,
        "first_used_at_us": now_us,
        "last_used_at_us": now_us,
    }
    statement = (
        insert_into(connection, key_networks).values(values).on_conflict_do_nothing().returning(key_networks.c.key_id)
    )
    return connection.execute(statement).first() is not None


def record_network(connection: sa.Connection, key_id: str, digest: bytes, now_us: int) -> None:
    is_it = sa.and_(key_networks.c.key_id == key_id, key_networks.c.digest == digest)
    connection.execute(key_networks.update().where(is_it).values(last_used_at_us=now_us))


def forget_networks(connection: sa.Connection, used_before_us: int) -> None:
    connection.execute(key_networks.delete().where(key_networks.c.last_used_at_us < used_before_us))


def forget_network(connection: sa.Connection, key_id: str, digest: bytes) -> None:
    is_it = sa.and_(key_networks.c.key_id == key_id, key_networks.c.digest == digest)
    connection.execute(key_networks.delete().where(is_it))
