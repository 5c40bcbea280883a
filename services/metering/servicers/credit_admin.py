"""Implements CreditAdminService: what operators book, and what they read of all accounts."""

import time

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1 import metering_pb2_grpc
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context
from services.metering.audit.auditor import audit
from services.metering.audit.closed_months import audit_months, read_closed
from services.metering.credit import messages as credit
from services.metering.credit.batch import Writer
from services.metering.credit.records import Settle
from services.metering.credit.store.balances import read_balances
from services.metering.messages import checked_id
from services.metering.months import messages as months
from services.metering.statements import messages as statements
from services.metering.statements.credit_history import read_page


class CreditAdminServicer(metering_pb2_grpc.CreditAdminServiceServicer):
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def GrantCredits(self, request: pb.GrantCreditsRequest, context: Context) -> pb.GrantCreditsResponse:
        request.operation_id = _by_operator(request.operation_id)
        balance = await self._writer.submit(credit.to_grant(request), credit.from_account)
        return pb.GrantCreditsResponse(balance=balance)

    async def AdjustCredits(self, request: pb.AdjustCreditsRequest, context: Context) -> pb.AdjustCreditsResponse:
        request.operation_id = _by_operator(request.operation_id)
        balance = await self._writer.submit(credit.to_adjust(request), credit.from_account)
        return pb.AdjustCreditsResponse(balance=balance)

    async def ListBalances(self, request: pb.ListBalancesRequest, context: Context) -> pb.ListBalancesResponse:
        account_ids = [checked_id(account_id, "account_ids") for account_id in request.account_ids]
        accounts = await self._database.read(read_balances, account_ids)
        return pb.ListBalancesResponse(balances=map(credit.from_account, accounts))

    async def ListCredits(self, request: pb.ListCreditsRequest, context: Context) -> pb.ListCreditsResponse:
        query = statements.to_credit_query(request)
        return statements.from_credit_page(await self._database.read(read_page, *query))

    async def Audit(self, request: pb.AuditRequest, context: Context) -> pb.AuditResponse:
        month = months.to_month(request.month) if request.month else None
        violations = await audit(self._database)
        if month is not None or request.all_months:
            violations += await audit_months(self._database, month)
        return pb.AuditResponse(violations=violations)

    async def BookUnmatched(self, request: pb.BookUnmatchedRequest, context: Context) -> pb.BookUnmatchedResponse:
        response, now_us = pb.BookUnmatchedResponse(), time.time_ns() // 1000
        for settle in self._writer.unmatched_settlements.list():
            described = credit.from_unmatched(settle, self._writer.prices, now_us)
            if settle.request_id in request.request_ids and settle.class_id:
                try:
                    described.charged_nanos = await self._book(settle)
                except LegatoError as error:
                    described.refusal = error.message
            response.settlements.append(described)
        return response

    async def _book(self, settle: Settle) -> int:
        """Holds the credit and settles it; returns what was charged."""
        try:
            await self._writer.submit(credit.to_missing_hold(settle), lambda _: None)
        except LegatoError as error:
            # The edge offers it meanwhile, too: then it is settled.
            if error.reason is not Reason.REQUEST_RESOLVED:
                raise
        charged_nanos = await self._writer.submit(settle, lambda settled: settled.charged_nanos)
        self._writer.unmatched_settlements.forget(settle)
        return charged_nanos

    async def ListClosings(self, request: pb.ListClosingsRequest, context: Context) -> pb.ListClosingsResponse:
        closed = await self._database.read(read_closed)
        return pb.ListClosingsResponse(
            closings=[months.from_closing(closing, closed.pruned_before_us) for closing in closed.closings]
        )


def _by_operator(operation_id: str) -> str:
    """Returns the id with the operator who books, so that the ledger itself tells who it was; of a caller without an
    access token, such as the command line, the id as it is."""
    access = current_access.get()
    return operation_id if access is None else f"{access.user_id}-{operation_id}"
