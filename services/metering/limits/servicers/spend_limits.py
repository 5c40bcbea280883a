"""Implements the RPCs of spend limits."""

from typing import Final

from legato_protos.metering.v1 import spend_limits_pb2 as pb
from legato_protos.metering.v1 import spend_limits_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.rpc.access_check import require_no_key
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, InheritSpendLimits, SetSpendLimits, SpendLimits
from services.metering.credit.messages import current_user
from services.metering.credit.records import ChangedBy
from services.metering.credit.store.spends import list_spends
from services.metering.limits.messages import from_spend, to_spend_limits
from services.metering.limits.spend_recount import recount_spends
from services.metering.messages import checked_id, invalid

KEYS_MOST: Final = 1_000


class SpendLimitServicer(spend_limits_pb2_grpc.SpendLimitServiceServicer):
    def __init__(self, database: Database, writer: Writer, log: Log) -> None:
        self._database = database
        self._writer = writer
        self._log = log

    async def ListSpendLimits(self, request: pb.ListSpendLimitsRequest, context: Context) -> pb.ListSpendLimitsResponse:
        account_id = checked_id(request.account_id, "account_id")
        if len(request.key_ids) > KEYS_MOST:
            raise invalid(Sentence("keys_asked_most", most=KEYS_MOST), "key_ids")
        key_ids = [checked_id(key_id, "key_ids") for key_id in request.key_ids]
        spends = await self._database.read(list_spends, account_id, key_ids)
        return pb.ListSpendLimitsResponse(spends=map(from_spend, spends))

    async def SetSpendLimits(self, request: pb.SetSpendLimitsRequest, context: Context) -> pb.SetSpendLimitsResponse:
        require_no_key(request.key_id)
        operation = SetSpendLimits(
            account_id=checked_id(request.account_id, "account_id"),
            key_id=checked_id(request.key_id, "key_id") if request.key_id else WHOLE_ACCOUNT,
            limits=to_spend_limits(request.limits),
            changed_by=current_user(),
        )
        return pb.SetSpendLimitsResponse(spend=await self._writer.submit(operation, from_spend))

    async def LimitKey(self, request: pb.LimitKeyRequest, context: Context) -> pb.LimitKeyResponse:
        account_id, key_id = checked_id(request.account_id, "account_id"), checked_id(request.key_id, "key_id")
        by = request.changed_by
        changed_by = ChangedBy(by.user_id, by.session_id) if request.HasField("changed_by") else None
        operation = SetSpendLimits(account_id, key_id, to_spend_limits(request.limits), changed_by)
        if request.replaced_key_id:
            replaced_key_id = checked_id(request.replaced_key_id, "replaced_key_id")
            if not await self._has_limits(account_id, replaced_key_id):
                # A key without limits costs a chat nothing, and stays so.
                return pb.LimitKeyResponse()
            operation = InheritSpendLimits(
                account_id, key_id, SpendLimits(), changed_by, replaced_key_id=replaced_key_id
            )
        return pb.LimitKeyResponse(spend=await self._writer.submit(operation, from_spend))

    async def _has_limits(self, account_id: str, key_id: str) -> bool:
        found = await self._database.read(list_spends, account_id, [key_id])
        return any(spend.limits != SpendLimits() for spend in found if spend.key_id == key_id)

    async def RecountSpends(self, request: pb.RecountSpendsRequest, context: Context) -> pb.RecountSpendsResponse:
        return pb.RecountSpendsResponse(**(await recount_spends(self._database, self._log))._asdict())
