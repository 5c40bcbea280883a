"""Lists, changes and closes accounts."""

from collections.abc import Callable
from dataclasses import replace

import sqlalchemy as sa

from services.auth.core.paging import Position
from services.auth.core.records.accounts import Account
from services.auth.core.store.accounts import behind, lock_account
from services.auth.core.store.tables import accounts
from services.auth.keys.store import epochs
from services.auth.keys.store.keys import revoke_keys
from services.auth.keys.store.playground import end_tokens
from services.auth.keys.store.tables import HAS_SECRET, caller_grants, keys, playground_tokens
from services.auth.notices.store.tables import key_networks, muted_notices, notice_deliveries, notices, webhooks
from services.auth.sign_in.store.codes import cancel_invitations
from services.chassis.database.records import find_all, values_of


def list_accounts(connection: sa.Connection, after: Position | None, limit: int, wanted: str = "") -> list[Account]:
    """Lists accounts in the order of creation: all, or those with `wanted` in the name or where the id begins."""
    query = sa.select(accounts).order_by(accounts.c.created_at_us, accounts.c.account_id).limit(limit)
    if wanted:
        is_named = accounts.c.name.icontains(wanted, autoescape=True)
        query = query.where(sa.or_(is_named, accounts.c.account_id.istartswith(wanted, autoescape=True)))
    if after is not None:
        query = query.where(behind(accounts.c.created_at_us, accounts.c.account_id, after))
    return find_all(connection, Account, query)


def change_account(connection: sa.Connection, account_id: str, change: Callable[[Account], Account]) -> Account:
    """Applies `change` to the account and returns the result."""
    before = lock_account(connection, account_id)
    after = change(before)
    if after != before:
        connection.execute(
            accounts.update().where(accounts.c.account_id == account_id).values(**values_of(accounts, after))
        )
        of_account = keys.c.account_id == account_id
        tokens = sa.select(playground_tokens.c.token_id).join(keys, keys.c.key_id == playground_tokens.c.key_id)
        tokens = tokens.where(of_account)
        changed = sa.union_all(sa.select(keys.c.key_id).where(of_account), tokens).limit(epochs.LISTED_KEYS_MOST + 1)
        epochs.raise_epoch(connection, connection.execute(changed).scalars().all())
    return after


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
