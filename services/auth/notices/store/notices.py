"""Stores notices, their deliveries, and webhooks."""

from collections.abc import Collection, Sequence
from typing import Any, Final

import sqlalchemy as sa

from services.auth.core.records.accounts import Account
from services.auth.core.store.tables import accounts, memberships, users
from services.auth.keys.store.tables import keys
from services.auth.notices.records import Channel, Delivery, DeliveryState, OwnerNotice, Webhook
from services.auth.notices.store.tables import muted_notices, notice_deliveries, notices, webhooks
from services.chassis.access_tokens import AccountRole
from services.chassis.database.insert import insert_into
from services.chassis.database.records import find_all, get, values_of

_FAILED: Final[sa.ColumnElement[str]] = sa.literal_column("'failed'")


def add_notice(connection: sa.Connection, notice: OwnerNotice) -> bool:
    """Adds a notice; False if it is there already, or if there is no such account."""
    if get(connection, Account, notice.account_id) is None:
        return False
    added = insert_into(connection, notices).values(values_of(notices, notice))
    statement = added.on_conflict_do_nothing().returning(notices.c.notice_id)
    return connection.execute(statement).first() is not None


def retry_now(connection: sa.Connection, account_id: str, delivery_id: str, now_us: int) -> bool:
    """Makes a delivery due, from the start; False if the account has no such delivery that is not done."""
    own = sa.select(notices.c.notice_id).where(notices.c.account_id == account_id)
    is_it = sa.and_(
        notice_deliveries.c.delivery_id == delivery_id,
        notice_deliveries.c.notice_id.in_(own),
        notice_deliveries.c.state != DeliveryState.DELIVERED,
    )
    values = {"state": DeliveryState.PENDING, "attempts": 0, "next_attempt_at_us": now_us}
    return connection.execute(notice_deliveries.update().where(is_it).values(values)).rowcount > 0


def list_notices(
    connection: sa.Connection, account_id: str, limit: int, *, only_failed: bool = False
) -> list[tuple[OwnerNotice, list[Delivery]]]:
    """Lists an account's notices with their deliveries, the newest first."""
    query = sa.select(notices).where(notices.c.account_id == account_id)
    if only_failed:
        failed = sa.select(notice_deliveries.c.notice_id).where(notice_deliveries.c.state == _FAILED)
        query = query.where(notices.c.notice_id.in_(failed))
    query = query.order_by(notices.c.created_at_us.desc(), notices.c.notice_id).limit(limit)
    found = find_all(connection, OwnerNotice, query)
    by_notice: dict[str, list[Delivery]] = {notice.notice_id: [] for notice in found}
    made = sa.select(notice_deliveries).where(notice_deliveries.c.notice_id.in_(by_notice))
    made = made.order_by(notice_deliveries.c.channel.desc(), notice_deliveries.c.delivery_id)
    for delivery in find_all(connection, Delivery, made):
        by_notice[delivery.notice_id].append(delivery)
    return [(notice, by_notice[notice.notice_id]) for notice in found]


def list_dead_letters(connection: sa.Connection) -> list[tuple[str, str, Channel, str, str, int, int]]:
    """Returns account, its name, channel, the webhook's address (empty: mail), failure, count and time of the last
    attempt, the latest first."""
    last_attempt = sa.func.coalesce(sa.func.max(notice_deliveries.c.attempted_at_us), 0)
    columns = (notices.c.account_id, accounts.c.name, notice_deliveries.c.channel, webhooks.c.url)
    query = (
        sa.select(*columns, notice_deliveries.c.failure, sa.func.count(), last_attempt)
        .select_from(notice_deliveries)
        .join(notices, notices.c.notice_id == notice_deliveries.c.notice_id)
        .join(accounts, accounts.c.account_id == notices.c.account_id)
        .outerjoin(webhooks, webhooks.c.webhook_id == notice_deliveries.c.recipient_id)
        .where(notice_deliveries.c.state == _FAILED)
        .group_by(*columns, notice_deliveries.c.failure)
        .order_by(last_attempt.desc(), notices.c.account_id)
    )
    return [(*row[:3], row[3] or "", *row[4:]) for row in connection.execute(query)]


def count_by_state(connection: sa.Connection) -> dict[DeliveryState, int]:
    """Counts deliveries that are not done."""
    query = sa.select(notice_deliveries.c.state, sa.func.count()).where(
        notice_deliveries.c.state.in_([DeliveryState.PENDING, DeliveryState.FAILED])
    )
    counts = {row[0]: row[1] for row in connection.execute(query.group_by(notice_deliveries.c.state))}
    return {state: counts.get(state, 0) for state in (DeliveryState.PENDING, DeliveryState.FAILED)}


def forget_before(connection: sa.Connection, created_before_us: int, most: int) -> None:
    """Removes the oldest notices."""
    query = sa.select(notices.c.notice_id).where(notices.c.created_at_us < created_before_us)
    old_ids = list(connection.execute(query.order_by(notices.c.created_at_us).limit(most)).scalars())
    connection.execute(notice_deliveries.delete().where(notice_deliveries.c.notice_id.in_(old_ids)))
    connection.execute(notices.delete().where(notices.c.notice_id.in_(old_ids)))


def list_webhooks(connection: sa.Connection, account_id: str) -> list[Webhook]:
    query = sa.select(webhooks).where(webhooks.c.account_id == account_id)
    return find_all(connection, Webhook, query.order_by(webhooks.c.created_at_us))


def remove_webhook(connection: sa.Connection, account_id: str, webhook_id: str) -> bool:
    """Removes a webhook with what was not delivered to it; False if the account has none such."""
    is_it = sa.and_(webhooks.c.webhook_id == webhook_id, webhooks.c.account_id == account_id)
    if not connection.execute(webhooks.delete().where(is_it)).rowcount:
        return False
    is_undone = notice_deliveries.c.state != DeliveryState.DELIVERED
    connection.execute(notice_deliveries.delete().where(notice_deliveries.c.recipient_id == webhook_id, is_undone))
    return True


def muted_kinds(connection: sa.Connection, account_id: str) -> set[str]:
    return set(connection.scalars(sa.select(muted_notices.c.kind).where(muted_notices.c.account_id == account_id)))


def set_muted_kinds(connection: sa.Connection, account_id: str, kinds: Collection[str]) -> None:
    """Replaces them; call it with the account locked."""
    connection.execute(muted_notices.delete().where(muted_notices.c.account_id == account_id))
    if kinds:
        rows = [{"account_id": account_id, "kind": kind} for kind in sorted(kinds)]
        connection.execute(muted_notices.insert(), rows)


def owners_with_email(connection: sa.Connection, account_id: str) -> dict[str, bool]:
    """Returns the ids of owners with an address, in the order in which they joined, and whether each wants mail."""
    query = (
        sa.select(users.c.user_id, memberships.c.is_mailed)
        .join(memberships, memberships.c.user_id == users.c.user_id)
        .where(memberships.c.account_id == account_id, memberships.c.role == AccountRole.OWNER)
        .where(users.c.disabled_at_us.is_(None), users.c.email != "")
        .order_by(memberships.c.joined_at_us, users.c.user_id)
    )
    return {row.user_id: row.is_mailed for row in connection.execute(query)}


def set_mailed(connection: sa.Connection, account_id: str, user_id: str, *, is_mailed: bool) -> None:
    """Stores whether an owner gets mail. If not, what waits to be mailed to them is deleted, and never sent."""
    is_it = sa.and_(memberships.c.account_id == account_id, memberships.c.user_id == user_id)
    connection.execute(memberships.update().where(is_it).values(is_mailed=is_mailed))
    if not is_mailed:
        own = sa.select(notices.c.notice_id).where(notices.c.account_id == account_id)
        connection.execute(
            notice_deliveries.delete().where(
                notice_deliveries.c.recipient_id == user_id,
                notice_deliveries.c.notice_id.in_(own),
                notice_deliveries.c.state != DeliveryState.DELIVERED,
            )
        )


def key_names(connection: sa.Connection, key_ids: Collection[str]) -> dict[str, str]:
    query = sa.select(keys.c.key_id, keys.c.name).where(keys.c.key_id.in_(key_ids))
    return {row.key_id: row.name for row in connection.execute(query)}


def expiring_keys(connection: sa.Connection, now_us: int, until_us: int, days: int, limit: int) -> Sequence[Any]:
    """Returns keys that expire until then, of which no notice so close to it was given. Keys that were made for less
    time than that are left out. They are not locked: accounts are locked before keys, by their notices."""
    query = (
        sa.select(keys.c.key_id, keys.c.account_id, keys.c.name, keys.c.expires_at_us)
        .join(accounts, accounts.c.account_id == keys.c.account_id)
        .where(keys.c.expires_at_us > now_us, keys.c.expires_at_us <= until_us)
        .where(keys.c.revoked_at_us.is_(None), accounts.c.suspended_at_us.is_(None))
        .where(sa.or_(keys.c.expiry_noted_days.is_(None), keys.c.expiry_noted_days > days))
        .where(keys.c.expires_at_us - keys.c.created_at_us > until_us - now_us)
        .order_by(keys.c.expires_at_us, keys.c.key_id)
        .limit(limit)
    )
    return connection.execute(query).all()


def record_expiry(connection: sa.Connection, key_ids: Collection[str], days: int) -> None:
    connection.execute(keys.update().where(keys.c.key_id.in_(key_ids)).values(expiry_noted_days=days))
