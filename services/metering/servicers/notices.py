"""Implements the RPCs of notices: the outbox for auth, and the thresholds of accounts."""

from functools import partial
from typing import Any, Final

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import notices_pb2 as pb
from protos.metering.v1 import notices_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.metering.ledger.notices import AccountNotice, NoticeRules
from services.metering.servicers.account_changes import current_user
from services.metering.store.notices import acknowledge, list_pending, read_threshold, set_threshold
from services.metering.wire.operations import checked_id, invalid

Context = grpc.aio.ServicerContext[Any, Any]

PAGE_MOST: Final = 1_000


class NoticeOutboxServicer(notices_pb2_grpc.NoticeOutboxServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ListPendingNotices(
        self, request: pb.ListPendingNoticesRequest, context: Context
    ) -> pb.ListPendingNoticesResponse:
        most = request.page_size or PAGE_MOST
        if not 0 < most <= PAGE_MOST:
            raise invalid(f"A page has at most {PAGE_MOST} notices.", "page_size")
        pending = await self._database.read(partial(list_pending, most=most))
        return pb.ListPendingNoticesResponse(notices=map(_from_notice, pending))

    async def AcknowledgeNotices(
        self, request: pb.AcknowledgeNoticesRequest, context: Context
    ) -> pb.AcknowledgeNoticesResponse:
        if len(request.notice_ids) > PAGE_MOST:
            raise invalid(f"At most {PAGE_MOST} notices can be acknowledged at once.", "notice_ids")
        await self._database.write(partial(acknowledge, notice_ids=list(request.notice_ids)))
        return pb.AcknowledgeNoticesResponse()


class NoticeThresholdServicer(notices_pb2_grpc.NoticeThresholdServiceServicer):
    def __init__(self, database: Database, rules: NoticeRules) -> None:
        self._database = database
        self._rules = rules

    async def GetLowBalance(self, request: pb.GetLowBalanceRequest, context: Context) -> pb.GetLowBalanceResponse:
        account_id = checked_id(request.account_id, "account_id")
        own_nanos = await self._database.read_briefly(partial(read_threshold, account_id=account_id))
        return pb.GetLowBalanceResponse(low_balance=self._to_low_balance(own_nanos))

    async def SetLowBalance(self, request: pb.SetLowBalanceRequest, context: Context) -> pb.SetLowBalanceResponse:
        account_id = checked_id(request.account_id, "account_id")
        own_nanos = request.threshold_nanos if request.HasField("threshold_nanos") else None
        if own_nanos is not None and not 0 <= own_nanos <= LARGEST_BOOKING_NANOS:
            raise invalid("A threshold must not be negative, and at most a million dollars.", "threshold_nanos")
        change = partial(set_threshold, account_id=account_id, low_balance_nanos=own_nanos, changed_by=current_user())
        await self._database.write(change)
        return pb.SetLowBalanceResponse(low_balance=self._to_low_balance(own_nanos))

    def _to_low_balance(self, own_nanos: int | None) -> pb.LowBalance:
        threshold_nanos = self._rules.low_balance_nanos if own_nanos is None else own_nanos
        return pb.LowBalance(threshold_nanos=threshold_nanos, is_default=own_nanos is None)


def _from_notice(notice: AccountNotice) -> pb.PendingNotice:
    recorded = Timestamp()
    recorded.FromMicroseconds(notice.recorded_at_us)
    return pb.PendingNotice(
        notice_id=notice.notice_id,
        kind=notice.kind,
        account_id=notice.account_id,
        key_id=notice.key_id,
        period=notice.period,
        amount_nanos=notice.amount_nanos,
        threshold_nanos=notice.threshold_nanos,
        record_time=recorded,
    )
