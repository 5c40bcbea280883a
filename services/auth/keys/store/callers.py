"""Stores the grants of internal callers, and the keys without a secret that their requests are counted under."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from services.auth.core.paging import Position
from services.auth.core.store.accounts import behind
from services.auth.keys.records import CallerGrant, Key
from services.auth.keys.store import epochs
from services.auth.keys.store.tables import caller_grants, epoch, keys
from services.chassis.database.records import find, find_all, values_of


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


def revoke_grants(
    connection: sa.Connection, caller: str, account_id: str, now_us: int
) -> tuple[list[CallerGrant], list[CallerGrant]] | None:
    """Revokes the grant of an account, or with an empty id all grants of a caller, and their keys. Returns those that
    were good until now, and those that still are; None: there never was such a grant."""
    grants = lock_grants(connection, caller)
    named = [grant for grant in grants if account_id in ("", grant.account_id)]
    if not named:
        return None
    revoked = [replace(grant, revoked_at_us=now_us) for grant in named if grant.revoked_at_us is None]
    put_grants(connection, revoked)
    good = [grant for grant in grants if grant.revoked_at_us is None and grant not in named]
    of_all = next((grant for grant in good if not grant.account_id), None)
    if of_all is not None:
        apply_grant(connection, of_all)
    else:
        revoke_keys_without_grant(connection, caller, now_us)
    return revoked, good


def list_grants(connection: sa.Connection, after: Position | None, limit: int) -> list[CallerGrant]:
    """Lists grants in the order of creation."""
    order = (caller_grants.c.created_at_us, caller_grants.c.grant_id)
    query = sa.select(caller_grants).order_by(*order).limit(limit)
    return find_all(connection, CallerGrant, query if after is None else query.where(behind(*order, after)))


def find_caller_key(connection: sa.Connection, caller: str, account_id: str) -> Key | None:
    query = sa.select(keys).where(keys.c.caller_name == caller, keys.c.account_id == account_id)
    return find(connection, Key, query)


def apply_grant(connection: sa.Connection, grant: CallerGrant) -> None:
    """Makes keys good that a grant is for, with its limits: that of its account, or all without a grant of their own.
    Call it with the grants locked."""
    is_meant = keys.c.account_id == grant.account_id if grant.account_id else _has_no_own_grant(grant.caller)
    _change_keys(connection, grant.caller, is_meant, {"revoked_at_us": None, **asdict(grant.limits)})


def revoke_keys_without_grant(connection: sa.Connection, caller: str, now_us: int) -> None:
    """Revokes keys of a caller whose account has no grant of its own. Call it with the grants locked, where none is of
    all accounts."""
    is_meant = sa.and_(keys.c.revoked_at_us.is_(None), _has_no_own_grant(caller))
    _change_keys(connection, caller, is_meant, {"revoked_at_us": now_us})


def _has_no_own_grant(caller: str) -> sa.ColumnElement[bool]:
    granted = sa.select(caller_grants.c.account_id).where(
        caller_grants.c.caller == caller, caller_grants.c.revoked_at_us.is_(None)
    )
    return keys.c.account_id.not_in(granted)


def _change_keys(
    connection: sa.Connection, caller: str, is_meant: sa.ColumnElement[bool], values: Mapping[str, Any]
) -> None:
    """Changes keys of a caller, in one statement: there can be as many as accounts. Edges are told."""
    differs = sa.or_(*(keys.c[name].is_distinct_from(value) for name, value in values.items()))
    found = sa.select(keys.c.key_id).where(keys.c.caller_name == caller, is_meant, differs)
    # Locked in the order in which uses are noted.
    is_it = keys.c.key_id.in_(found.order_by(keys.c.key_id).with_for_update())
    changed = connection.execute(keys.update().where(is_it).values(values).returning(keys.c.key_id)).scalars().all()
    if changed:
        epochs.raise_epoch(connection, changed)


def list_caller_keys(connection: sa.Connection, account_id: str) -> list[Key]:
    """Lists the keys of all callers in an account. It finds them by their callers: an account can have many others."""
    granted = sa.select(caller_grants.c.caller).distinct()
    query = sa.select(keys).where(keys.c.caller_name.in_(granted), keys.c.account_id == account_id)
    return find_all(connection, Key, query.order_by(keys.c.caller_name))
