"""Stores the end of a user, of whom nothing is left but the id where others name it, and of an account."""

from dataclasses import replace
from typing import Final

import sqlalchemy as sa

from services.auth.paging import Position
from services.auth.records.accounts import Account
from services.auth.records.keys import Key
from services.auth.records.notices import DeliveryState
from services.auth.store.accounts import behind, change_account, lock_account
from services.auth.store.codes import cancel_invitations
from services.auth.store.keys import revoke_keys
from services.auth.store.notice_tables import key_networks, muted_notices, notice_deliveries, notices, webhooks
from services.auth.store.playground import end_tokens
from services.auth.store.sessions import end_sessions
from services.auth.store.tables import HAS_SECRET, caller_grants, keys, playground_tokens
from services.auth.store.user_tables import (
    challenges,
    invitations,
    memberships,
    oidc_identities,
    passkeys,
    passwords,
    recovery_codes,
    sign_in_links,
    totp,
    users,
)
from services.chassis.database.records import find_all

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


def erase_user(connection: sa.Connection, user_id: str) -> int:
    """Erases a user; returns how many sessions ended. Call it with the user's accounts and keys locked."""
    ended = end_sessions(connection, user_id)
    connection.execute(invitations.delete().where(invitations.c.invited_by == user_id))
    is_undone = notice_deliveries.c.state.in_((DeliveryState.PENDING, DeliveryState.FAILED))
    connection.execute(notice_deliveries.delete().where(notice_deliveries.c.recipient_id == user_id, is_undone))
    for table in _OF_A_USER:
        connection.execute(table.delete().where(table.c.user_id == user_id))
    return len(ended)


def close_account(connection: sa.Connection, account_id: str, now_us: int) -> tuple[Account, int, int]:
    """Closes an account for good: no key, playground or internal program of it works, and no notice is sent. Returns
    it, with the number of keys that worked until now, and of webhooks. Closing it again changes nothing."""
    lock_account(connection, account_id)
    of_account = keys.c.account_id == account_id
    good = sa.select(keys.c.key_id, HAS_SECRET).where(of_account, keys.c.revoked_at_us.is_(None))
    rows = connection.execute(good.order_by(keys.c.key_id).with_for_update()).all()
    revoke_keys(connection, [row.key_id for row in rows], now_us)

    def close(account: Account) -> Account:
        return replace(
            account,
            suspended_at_us=account.suspended_at_us or now_us,
            closed_at_us=account.closed_at_us or now_us,
        )

    # The epoch is raised: edges are told of every key and token.
    account = change_account(connection, account_id, close)
    key_ids = sa.select(keys.c.key_id).where(of_account)
    end_tokens(connection, playground_tokens.c.key_id.in_(key_ids))
    is_granted = sa.and_(caller_grants.c.account_id == account_id, caller_grants.c.revoked_at_us.is_(None))
    connection.execute(caller_grants.update().where(is_granted).values(revoked_at_us=now_us))
    connection.execute(key_networks.delete().where(key_networks.c.key_id.in_(key_ids)))
    of_notices = sa.select(notices.c.notice_id).where(notices.c.account_id == account_id)
    connection.execute(notice_deliveries.delete().where(notice_deliveries.c.notice_id.in_(of_notices)))
    for table in (notices, muted_notices):
        connection.execute(table.delete().where(table.c.account_id == account_id))
    removed = connection.execute(webhooks.delete().where(webhooks.c.account_id == account_id)).rowcount
    cancel_invitations(connection, account_id)
    return account, sum(row[1] for row in rows), removed


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
