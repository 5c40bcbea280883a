"""Chooses and takes deliveries that are due: one for each recipient, few for each account."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from services.auth.notices.records import Channel, Delivery, DeliveryState, OwnerNotice
from services.auth.notices.store.tables import notice_deliveries, notices
from services.chassis.database.records import find_all

Claimed = tuple[Delivery, OwnerNotice]

_PENDING: Final[sa.ColumnElement[str]] = sa.literal_column("'pending'")
_NOW_US: Final[sa.BindParameter[int]] = sa.bindparam("now_us", type_=sa.BigInteger)


def _first_of_each() -> "sa.Select[tuple[str, str, str, str]]":
    """Builds the query for the first delivery that is due of every recipient. It goes from recipient to recipient in
    the index, so that one with many deliveries costs as much as one with a few."""
    recipients = (
        sa.select(sa.func.min(notice_deliveries.c.recipient_id).label("recipient_id"))
        .where(notice_deliveries.c.state == _PENDING)
        .cte("recipients", recursive=True)
    )
    later = notice_deliveries.alias("later")
    following = (
        sa.select(sa.func.min(later.c.recipient_id))
        .where(later.c.state == _PENDING, later.c.recipient_id > recipients.c.recipient_id)
        .scalar_subquery()
    )
    recipients = recipients.union_all(sa.select(following).where(recipients.c.recipient_id.is_not(None)))
    due = notice_deliveries.alias("due")
    first = (
        sa.select(due.c.delivery_id)
        .where(due.c.state == _PENDING, due.c.recipient_id == recipients.c.recipient_id)
        .where(due.c.next_attempt_at_us <= _NOW_US)
        .order_by(due.c.next_attempt_at_us)
        .limit(1)
        .scalar_subquery()
    )
    return (
        sa.select(
            notice_deliveries.c.delivery_id,
            notice_deliveries.c.recipient_id,
            notice_deliveries.c.channel,
            notices.c.account_id,
        )
        .select_from(recipients)
        .join(notice_deliveries, notice_deliveries.c.delivery_id == first)
        .join(notices, notices.c.notice_id == notice_deliveries.c.notice_id)
        .order_by(notice_deliveries.c.next_attempt_at_us)
    )


_FIRST_OF_EACH: Final = _first_of_each()


def claim_due(
    connection: sa.Connection,
    now_us: int,
    lease_until_us: int,
    running: Sequence[Claimed],
    most: Mapping[Channel, int],
    account_most: int,
) -> list[Claimed]:
    """Takes deliveries for as long as the lease, those that have waited longest first. Together with those that are
    `running`, a channel has at most so many, one account at most `account_most` of each channel, and one recipient one.
    Another process takes others."""
    recipients = {delivery.recipient_id for delivery, _ in running}
    channels = Counter(delivery.channel for delivery, _ in running)
    accounts = Counter((notice.account_id, delivery.channel) for delivery, notice in running)
    chosen_ids: list[str] = []
    for row in connection.execute(_FIRST_OF_EACH, {"now_us": now_us}).all():
        channel, of_account = row.channel, (row.account_id, row.channel)
        is_full = channels[channel] >= most[channel] or accounts[of_account] >= account_most
        if is_full or row.recipient_id in recipients:
            continue
        channels[channel] += 1
        accounts[of_account] += 1
        chosen_ids.append(row.delivery_id)
    if not chosen_ids:
        return []
    query = sa.select(notice_deliveries).where(notice_deliveries.c.delivery_id.in_(chosen_ids))
    locked = find_all(connection, Delivery, query.with_for_update(skip_locked=True))
    # Another process may have taken one meanwhile. Not asked of the query: SQLite would rather read all that are due.
    taken = [each for each in locked if each.state is DeliveryState.PENDING and each.next_attempt_at_us <= now_us]
    connection.execute(
        notice_deliveries.update()
        .where(notice_deliveries.c.delivery_id.in_([delivery.delivery_id for delivery in taken]))
        .values(next_attempt_at_us=lease_until_us, attempts=notice_deliveries.c.attempts + 1, attempted_at_us=now_us)
    )
    of_taken = sa.select(notices).where(notices.c.notice_id.in_({delivery.notice_id for delivery in taken}))
    found = {notice.notice_id: notice for notice in find_all(connection, OwnerNotice, of_taken)}
    return [(delivery, found[delivery.notice_id]) for delivery in taken]


def record_outcome(
    connection: sa.Connection, delivery_id: str, state: DeliveryState, failure: str, next_attempt_at_us: int
) -> None:
    """Records how an attempt ended."""
    connection.execute(
        notice_deliveries.update()
        .where(notice_deliveries.c.delivery_id == delivery_id)
        .values(state=state, failure=failure, next_attempt_at_us=next_attempt_at_us)
    )
