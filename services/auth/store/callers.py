"""Stores the grants of internal callers, and the keys without a secret that their requests are counted under."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.paging import Position
from services.auth.records.callers import CallerGrant
from services.auth.records.keys import Key
from services.auth.store import epochs
from services.auth.store.accounts import behind
from services.auth.store.tables import caller_grants, epoch, keys
from services.chassis.database.records import find, find_all, values_of

# What a grant says about its keys.
_FOLLOWING: Final = ("revoked_at_us", "requests_per_minute", "tokens_per_minute", "concurrent_requests")


def lock_grants(connection: sa.Connection, caller: str) -> list[CallerGrant]:
    """Returns all grants of a caller, revoked ones too. Until the commit no other transaction adds or changes one, and
    none adds a key because of those that are there. It locks the epoch first: call it after accounts are locked."""
    connection.execute(sa.select(epoch.c.value).with_for_update())
    query = sa.select(caller_grants).where(caller_grants.c.caller == caller).order_by(caller_grants.c.grant_id)
    return find_all(connection, CallerGrant, query.with_for_update())


def find_grant(connection: sa.Connection, caller: str, account_id: str, *, locks: bool = False) -> CallerGrant | None:
    """Returns what lets a caller call for an account: the grant of that account, or else the one of all accounts. If it
    `locks`, neither can be revoked before the commit."""
    query = sa.select(caller_grants).where(
        caller_grants.c.caller == caller,
        caller_grants.c.account_id.in_((account_id, "")),
        caller_grants.c.revoked_at_us.is_(None),
    )
    found = find_all(connection, CallerGrant, query.with_for_update() if locks else query)
    return max(found, key=lambda grant: grant.account_id, default=None)


def put_grants(connection: sa.Connection, changed: Sequence[CallerGrant]) -> None:
    """Stores changes of grants that are locked."""
    for grant in changed:
        is_it = caller_grants.c.grant_id == grant.grant_id
        connection.execute(caller_grants.update().where(is_it).values(**values_of(caller_grants, grant)))


def list_grants(connection: sa.Connection, after: Position | None, limit: int) -> list[CallerGrant]:
    """Lists grants in the order of creation."""
    order = (caller_grants.c.created_at_us, caller_grants.c.grant_id)
    query = sa.select(caller_grants).order_by(*order).limit(limit)
    return find_all(connection, CallerGrant, query if after is None else query.where(behind(*order, after)))


def find_caller_key(connection: sa.Connection, caller: str, account_id: str) -> Key | None:
    query = sa.select(keys).where(keys.c.caller_name == caller, keys.c.account_id == account_id)
    return find(connection, Key, query)


def lock_caller_keys(connection: sa.Connection, caller: str) -> list[Key]:
    """Locks the keys of a caller until the commit, in the order in which their uses are noted."""
    query = sa.select(keys).where(keys.c.caller_name == caller).order_by(keys.c.key_id)
    return find_all(connection, Key, query.with_for_update())


def put_caller_keys(connection: sa.Connection, changed: Sequence[Key]) -> None:
    """Stores what grants changed in keys that are locked, and has edges told."""
    if changed:
        new: dict[str, Any] = {name: sa.bindparam(f"new_{name}") for name in _FOLLOWING}
        update = keys.update().where(keys.c.key_id == sa.bindparam("changed_id")).values(new)
        rows = [(key.key_id, values_of(keys, key)) for key in changed]
        given = [{f"new_{name}": values[name] for name in _FOLLOWING} | {"changed_id": id} for id, values in rows]
        connection.execute(update, given)
        epochs.raise_epoch(connection, [key.key_id for key in changed])


def list_caller_keys(connection: sa.Connection, account_id: str) -> list[Key]:
    """Lists the keys of all callers in an account. It finds them by their callers: an account can have many others."""
    granted = sa.select(caller_grants.c.caller).distinct()
    query = sa.select(keys).where(keys.c.caller_name.in_(granted), keys.c.account_id == account_id)
    return find_all(connection, Key, query.order_by(keys.c.caller_name))
