"""Reads of one account what its RPCs read."""

from services.chassis.database.database import Database
from services.metering.audit.closed_months import read_closed
from services.metering.credit.ledger.closings import Closing
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.reports.usage import UsageRow, report_usage
from services.metering.statements.credit_history import CreditPage, CreditPosition, read_page
from services.metering.statements.rules import (
    RequestsPage,
    StatementDays,
    StatementPage,
    StatementQuery,
    read_days,
    read_entry_page,
    read_request_page,
)
from services.metering.statements.store.entries import Receipt, read_receipt


async def list_entries(database: Database, query: StatementQuery) -> StatementPage:
    return await database.read(read_entry_page, query)


async def list_requests(database: Database, query: StatementQuery) -> RequestsPage:
    return await database.read(read_request_page, query)


async def list_days(database: Database, account_id: str, start_us: int, end_us: int, time_zone: str) -> StatementDays:
    return await database.read(read_days, account_id, start_us, end_us, time_zone)


async def find_request(database: Database, account_id: str, request_id: str) -> Receipt | None:
    return await database.read(read_receipt, account_id, request_id)


async def list_credits(database: Database, account_id: str, after: CreditPosition, size: int) -> CreditPage:
    return await database.read(read_page, account_id, after, size)


async def list_top_keys(database: Database, query: UsageReportQuery) -> tuple[list[UsageRow], int]:
    return await database.read(report_usage, query)


async def list_usage(database: Database, query: UsageReportQuery) -> list[UsageRow]:
    rows, _ = await list_top_keys(database, query)
    return rows


async def list_closings(database: Database) -> list[Closing]:
    return (await database.read(read_closed)).closings
