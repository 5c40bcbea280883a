"""Takes over what metering has recorded, notices to owners and changes for the audit log: stores it here first, then
acknowledges it there.

A crash in between brings it twice, and its id makes it one. Any number of replicas may do this at the same time.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from protos.metering.v1 import account_changes_pb2 as changes_pb
from protos.metering.v1 import notices_pb2 as pb
from protos.metering.v1.account_changes_pb2_grpc import ChangeOutboxServiceStub
from protos.metering.v1.notices_pb2_grpc import NoticeOutboxServiceStub
from services.auth.audit.log import AuditLog
from services.auth.notices.recording import NoticeRecorder
from services.auth.notices.words import make_notice
from services.auth.records.notices import Kind, OwnerNotice
from services.auth.store import Connection
from services.auth.store import audit as stored_audit
from services.auth.store.notices import key_names
from services.auth.store.sessions import session_by_id
from services.chassis.database.database import Database
from services.chassis.money import format_usd
from services.chassis.rpc.replica_channel import ReplicaChannel

if TYPE_CHECKING:
    from protos.metering.v1.account_changes_pb2_grpc import ChangeOutboxServiceAsyncStub
    from protos.metering.v1.notices_pb2_grpc import NoticeOutboxServiceAsyncStub

# Metering answers in milliseconds, and may be starting.
TIMEOUT_S: Final = 3.0
AT_ONCE_MOST: Final = 200


class MeteringOutbox:
    def __init__(self, metering: ReplicaChannel) -> None:
        """Asks any replica: all have the same database."""
        self._notices: NoticeOutboxServiceAsyncStub = NoticeOutboxServiceStub(metering.channel)
        self._changes: ChangeOutboxServiceAsyncStub = ChangeOutboxServiceStub(metering.channel)

    async def list_pending(self) -> Sequence[pb.PendingNotice]:
        request = pb.ListPendingNoticesRequest(page_size=AT_ONCE_MOST)
        return (await self._notices.ListPendingNotices(request, timeout=TIMEOUT_S)).notices

    async def acknowledge(self, notice_ids: Sequence[str]) -> None:
        request = pb.AcknowledgeNoticesRequest(notice_ids=notice_ids)
        await self._notices.AcknowledgeNotices(request, timeout=TIMEOUT_S)

    async def list_changes(self) -> Sequence[changes_pb.PendingChange]:
        request = changes_pb.ListPendingChangesRequest(page_size=AT_ONCE_MOST)
        return (await self._changes.ListPendingChanges(request, timeout=TIMEOUT_S)).changes

    async def acknowledge_changes(self, change_ids: Sequence[str]) -> None:
        request = changes_pb.AcknowledgeChangesRequest(change_ids=change_ids)
        await self._changes.AcknowledgeChanges(request, timeout=TIMEOUT_S)


async def take_over(database: Database, outbox: MeteringOutbox, recorder: NoticeRecorder) -> int:
    """Takes over all pending notices; returns how many there were."""
    count = 0
    while pending := await outbox.list_pending():
        await database.write(partial(_store, pending=pending, recorder=recorder))
        await outbox.acknowledge([notice.notice_id for notice in pending])
        count += len(pending)
        if len(pending) < AT_ONCE_MOST:
            break
    return count


async def take_over_changes(database: Database, outbox: MeteringOutbox, audit: AuditLog, now_us: int) -> None:
    """Has the audit log tell of all pending changes."""
    while pending := await outbox.list_changes():
        await database.write(partial(_append, pending=pending, audit=audit, now_us=now_us))
        await outbox.acknowledge_changes([change.change_id for change in pending])
        if len(pending) < AT_ONCE_MOST:
            break


def _append(
    connection: Connection, *, pending: Sequence[changes_pb.PendingChange], audit: AuditLog, now_us: int
) -> None:
    new = [change for change in pending if stored_audit.note_change(connection, change.change_id, now_us)]
    for change in new:
        session = session_by_id(connection, change.session_id) if change.session_id else None
        audit.append(
            connection,
            change.action,
            account_id=change.account_id,
            object_id=change.key_id or change.account_id,
            user_id=change.user_id,
            session_id=change.session_id,
            network=session.network if session else "",
            occurred_at_us=change.record_time.ToMicroseconds(),
        )


def _store(connection: Connection, *, pending: Sequence[pb.PendingNotice], recorder: NoticeRecorder) -> None:
    names = key_names(connection, {notice.key_id for notice in pending if notice.key_id})
    for notice in pending:
        if notice.kind in _DATA:
            recorder.record(connection, _to_notice(notice, names.get(notice.key_id, notice.key_id)))


def _to_notice(pending: pb.PendingNotice, key_name: str) -> OwnerNotice:
    kind = Kind(pending.kind)
    data = _DATA[kind](pending)
    now_us = pending.record_time.ToMicroseconds()
    return make_notice(pending.notice_id, pending.account_id, kind, pending.key_id, key_name, data, now_us)


def _balance(notice: pb.PendingNotice) -> dict[str, Any]:
    return {**_amount("balance", notice.amount_nanos), **_amount("threshold", notice.threshold_nanos)}


def _limit(notice: pb.PendingNotice) -> dict[str, Any]:
    amounts = {**_amount("spent", notice.amount_nanos), **_amount("limit", notice.threshold_nanos)}
    return {"period": notice.period, **amounts}


def _amount(name: str, nanos: int) -> dict[str, Any]:
    return {f"{name}_usd": format_usd(nanos), f"{name}_nanos": nanos}


# Others are of a later version of metering, and nobody here knows what they mean.
_DATA: Final = {Kind.BALANCE_LOW: _balance, Kind.SPEND_LIMIT_NEAR: _limit, Kind.SPEND_LIMIT_REACHED: _limit}
