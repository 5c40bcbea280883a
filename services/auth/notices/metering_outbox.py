"""Takes over what metering has recorded, notices to owners and changes for the audit log: stores it here first, then
acknowledges it there.

A crash in between brings it twice, and its id makes it one. Any number of replicas may do this at the same time.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from protos.metering.v1 import outbox_pb2 as pb
from protos.metering.v1.outbox_pb2_grpc import OutboxServiceStub
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
    from protos.metering.v1.outbox_pb2_grpc import OutboxServiceAsyncStub

# Metering answers in milliseconds, and may be starting.
TIMEOUT_S: Final = 3.0
AT_ONCE_MOST: Final = 200


class MeteringOutbox:
    def __init__(self, metering: ReplicaChannel) -> None:
        """Asks any replica: all have the same database."""
        self._stub: OutboxServiceAsyncStub = OutboxServiceStub(metering.channel)

    async def list_pending(self) -> pb.ListPendingResponse:
        return await self._stub.ListPending(pb.ListPendingRequest(page_size=AT_ONCE_MOST), timeout=TIMEOUT_S)

    async def acknowledge(self, pending: pb.ListPendingResponse) -> None:
        request = pb.AcknowledgeRequest(
            notice_ids=[notice.notice_id for notice in pending.notices],
            change_ids=[change.change_id for change in pending.changes],
        )
        await self._stub.Acknowledge(request, timeout=TIMEOUT_S)


async def take_over(
    database: Database, outbox: MeteringOutbox, recorder: NoticeRecorder, audit: AuditLog, now_us: int
) -> int:
    """Takes over all that is pending; returns how much that was."""
    count, is_last = 0, False
    while not is_last:
        pending = await outbox.list_pending()
        sizes = len(pending.notices), len(pending.changes)
        if any(sizes):
            await database.write(partial(_store, pending=pending, recorder=recorder, audit=audit, now_us=now_us))
            await outbox.acknowledge(pending)
        count, is_last = count + sum(sizes), max(sizes) < AT_ONCE_MOST
    return count


def _store(
    connection: Connection, *, pending: pb.ListPendingResponse, recorder: NoticeRecorder, audit: AuditLog, now_us: int
) -> None:
    names = key_names(connection, {notice.key_id for notice in pending.notices if notice.key_id})
    for notice in pending.notices:
        if notice.kind in _DATA:
            recorder.record(connection, _to_notice(notice, names.get(notice.key_id, notice.key_id)))
    new = [change for change in pending.changes if stored_audit.note_change(connection, change.change_id, now_us)]
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


# Others are of a later version of metering, and mean nothing here.
_DATA: Final = {Kind.BALANCE_LOW: _balance, Kind.SPEND_LIMIT_NEAR: _limit, Kind.SPEND_LIMIT_REACHED: _limit}
