"""Takes over the notices that metering has recorded: stores them here first, then acknowledges them there.

A crash in between brings a notice twice, and its id makes it one. Any number of replicas may do this at the same time.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from protos.metering.v1 import notices_pb2 as pb
from protos.metering.v1.notices_pb2_grpc import NoticeOutboxServiceStub
from services.auth.notices.recording import NoticeRecorder
from services.auth.notices.records import Kind, OwnerNotice, make_notice
from services.auth.users.store import Connection
from services.auth.users.store.notices import key_names
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.money import format_usd
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, errors_of
from services.chassis.rpc.replicas import parse_endpoints

if TYPE_CHECKING:
    from protos.metering.v1.notices_pb2_grpc import NoticeOutboxServiceAsyncStub

NAME: Final = "Metering"
# Metering answers in milliseconds, and may be starting.
TIMEOUT_S: Final = 3.0
AT_ONCE_MOST: Final = 200


class MeteringOutbox:
    def __init__(self, addresses: str, certificates: Certificates | None = None) -> None:
        """Takes `addresses` as unix:PATH or HOST:PORT, comma-separated."""
        self._channels: list[ChannelHolder[NoticeOutboxServiceAsyncStub]] = [
            ChannelHolder(endpoint.address, "metering", NoticeOutboxServiceStub, certificates)
            for endpoint in parse_endpoints(addresses)
        ]

    async def list_pending(self) -> Sequence[pb.PendingNotice]:
        request = pb.ListPendingNoticesRequest(page_size=AT_ONCE_MOST)
        return (await self._call("ListPendingNotices", request)).notices  # type: ignore[no-any-return]

    async def acknowledge(self, notice_ids: Sequence[str]) -> None:
        await self._call("AcknowledgeNotices", pb.AcknowledgeNoticesRequest(notice_ids=notice_ids))

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    async def _call(self, method: str, request: Any) -> Any:
        """Calls the first replica that answers; all have the same database."""
        for channel in self._channels[:-1]:
            try:
                with errors_of(NAME):
                    return await getattr(channel.stub, method)(request, timeout=TIMEOUT_S, wait_for_ready=True)
            except LegatoError:
                continue
        with errors_of(NAME):
            return await getattr(self._channels[-1].stub, method)(request, timeout=TIMEOUT_S, wait_for_ready=True)


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
