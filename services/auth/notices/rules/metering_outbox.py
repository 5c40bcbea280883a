"""Takes over what metering has recorded, notices to owners and changes for the audit log: stores it here first, then
acknowledges it there.

A crash in between brings it twice, and its id makes it one. Any number of replicas may do this at the same time.
"""

from typing import TYPE_CHECKING, Final

from legato_protos.metering.v1 import outbox_pb2 as pb
from services.auth.core.audit_log import AuditLog
from services.auth.core.store import Connection
from services.auth.core.store import audit as stored_audit
from services.auth.notices.records import Kind, NoticeData, OwnerNotice
from services.auth.notices.rules.recording import NoticeRecorder
from services.auth.notices.rules.words import make_notice
from services.auth.notices.store.notices import key_names
from services.chassis.changes import to_changes
from services.chassis.database.database import Database
from services.chassis.money import format_usd

if TYPE_CHECKING:
    from legato_protos.metering.v1.outbox_pb2_grpc import OutboxServiceAsyncStub

# Metering answers in milliseconds, and may be starting.
TIMEOUT_S: Final = 3.0
AT_ONCE_MOST: Final = 200


async def take_over(
    database: Database, outbox: "OutboxServiceAsyncStub", recorder: NoticeRecorder, audit: AuditLog, now_us: int
) -> None:
    """Takes over all that is pending."""
    is_last = False
    while not is_last:
        pending = await outbox.ListPending(pb.ListPendingRequest(page_size=AT_ONCE_MOST), timeout=TIMEOUT_S)
        if pending.notices or pending.changes:
            await database.write(_store, pending, recorder, audit, now_us)
            acknowledged = pb.AcknowledgeRequest(
                notice_ids=[notice.notice_id for notice in pending.notices],
                change_ids=[change.change_id for change in pending.changes],
            )
            await outbox.Acknowledge(acknowledged, timeout=TIMEOUT_S)
        is_last = max(len(pending.notices), len(pending.changes)) < AT_ONCE_MOST


def _store(
    connection: Connection, pending: pb.ListPendingResponse, recorder: NoticeRecorder, audit: AuditLog, now_us: int
) -> None:
    names = key_names(connection, {notice.key_id for notice in pending.notices if notice.key_id})
    for notice in pending.notices:
        if notice.kind in _DATA:
            recorder.record(connection, _to_notice(notice, names.get(notice.key_id, notice.key_id)))
    new = [change for change in pending.changes if stored_audit.record_change(connection, change.change_id, now_us)]
    for change in new:
        audit.append(
            connection,
            change.action,
            account_id=change.account_id,
            object_id=change.key_id or change.account_id,
            user_id=change.user_id,
            session_id=change.session_id,
            occurred_at_us=change.record_time.ToMicroseconds(),
            changes=to_changes(change.changes),
        )


def _to_notice(pending: pb.PendingNotice, key_name: str) -> OwnerNotice:
    kind = Kind(pending.kind)
    data = _DATA[kind](pending)
    now_us = pending.record_time.ToMicroseconds()
    return make_notice(pending.notice_id, pending.account_id, kind, pending.key_id, key_name, data, now_us)


def _balance(notice: pb.PendingNotice) -> NoticeData:
    return {**_amount("balance", notice.amount_nanos), **_amount("threshold", notice.threshold_nanos)}


def _limit(notice: pb.PendingNotice) -> NoticeData:
    amounts = {**_amount("spent", notice.amount_nanos), **_amount("limit", notice.threshold_nanos)}
    return {"period": notice.period, **amounts}


def _amount(name: str, nanos: int) -> NoticeData:
    return {f"{name}_usd": format_usd(nanos), f"{name}_nanos": nanos}


# Others are of a later version of metering, and mean nothing here.
_DATA: Final = {Kind.BALANCE_LOW: _balance, Kind.SPEND_LIMIT_NEAR: _limit, Kind.SPEND_LIMIT_REACHED: _limit}
