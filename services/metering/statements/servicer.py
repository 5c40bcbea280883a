"""Implements StatementService: what an account's owner may read of its ledger."""

from legato_protos.metering.v1 import statements_pb2 as pb
from legato_protos.metering.v1 import statements_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.rpc.callers import Context
from services.metering.audit.account_audits import AccountAudits
from services.metering.credit.store.prices import read_price_list
from services.metering.messages import checked_id, checked_request_id
from services.metering.statements import messages
from services.metering.statements.rules import read_days, read_entry_page, read_request_page
from services.metering.statements.store.entries import read_receipt


class StatementServicer(statements_pb2_grpc.StatementServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database
        self._audits = AccountAudits(database)

    async def ListLedgerEntries(
        self, request: pb.ListLedgerEntriesRequest, context: Context
    ) -> pb.ListLedgerEntriesResponse:
        query = messages.to_entries_query(request)
        return messages.from_statement_page(await self._database.read(read_entry_page, query))

    async def ListLedgerDays(self, request: pb.ListLedgerDaysRequest, context: Context) -> pb.ListLedgerDaysResponse:
        period = messages.to_days_query(request)
        return messages.from_statement_days(await self._database.read(read_days, *period))

    async def ListRequests(self, request: pb.ListRequestsRequest, context: Context) -> pb.ListRequestsResponse:
        query = messages.to_requests_query(request)
        if request.request_id:
            request_id = checked_request_id(request.request_id)
            return messages.from_found(await self._database.read(read_receipt, query.account_id, request_id))
        return messages.from_requests_page(await self._database.read(read_request_page, query))

    async def ListPrices(self, request: pb.ListPricesRequest, context: Context) -> pb.ListPricesResponse:
        return messages.from_price_list(await self._database.read(read_price_list))

    async def AuditAccount(self, request: pb.AuditAccountRequest, context: Context) -> pb.AuditAccountResponse:
        account_id = checked_id(request.account_id, "account_id")
        wait_s = request.max_wait_ms / 1000 if request.max_wait_ms > 0 else None
        progress = await self._audits.audit(account_id, wait_s)
        return messages.from_audit(progress)
