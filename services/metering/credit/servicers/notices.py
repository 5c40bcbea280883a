"""Implements the RPCs of notices: the thresholds of accounts."""

from legato_protos.metering.v1 import notices_pb2 as pb
from legato_protos.metering.v1 import notices_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.notices import NoticeRules
from services.metering.credit.messages import current_user
from services.metering.credit.store.accounts import read_threshold, set_threshold
from services.metering.messages import checked_id, invalid


class NoticeThresholdServicer(notices_pb2_grpc.NoticeThresholdServiceServicer):
    def __init__(self, database: Database, rules: NoticeRules) -> None:
        self._database = database
        self._rules = rules

    async def GetLowBalance(self, request: pb.GetLowBalanceRequest, context: Context) -> pb.GetLowBalanceResponse:
        account_id = checked_id(request.account_id, "account_id")
        own_nanos = await self._database.read(read_threshold, account_id)
        return pb.GetLowBalanceResponse(low_balance=self._to_low_balance(own_nanos))

    async def SetLowBalance(self, request: pb.SetLowBalanceRequest, context: Context) -> pb.SetLowBalanceResponse:
        account_id = checked_id(request.account_id, "account_id")
        own_nanos = request.threshold_nanos if request.HasField("threshold_nanos") else None
        if own_nanos is not None and not 0 <= own_nanos <= LARGEST_BOOKING_NANOS:
            raise invalid(Sentence("threshold_range"), "threshold_nanos")
        await self._database.write(set_threshold, account_id, own_nanos, current_user())
        return pb.SetLowBalanceResponse(low_balance=self._to_low_balance(own_nanos))

    def _to_low_balance(self, own_nanos: int | None) -> pb.LowBalance:
        threshold_nanos = self._rules.low_balance_nanos if own_nanos is None else own_nanos
        return pb.LowBalance(threshold_nanos=threshold_nanos, is_default=own_nanos is None)
