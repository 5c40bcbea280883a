"""`legato requests`."""

from datetime import datetime
from itertools import islice

import click

from cli.command import Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.commands.ledger.statements import describe_receipt, list_receipts, period_options
from cli.connection import CallRefused, call_service
from cli.values import account_argument
from protos.metering.v1.statements_pb2 import ListRequestsRequest, RequestReceipt
from services.chassis.errors import Reason

TABLE_COLUMNS = [
    "id", "state", "ended", "class", "prompt_tokens", "cached_tokens", "completion_tokens", "charged_usd", "end",
]  # fmt: skip

requests = command_group(
    "requests", "Show the receipts of an account's requests: tokens, price and charge, never content."
)


@requests.command("list")
@account_argument
@period_options
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Maximum number of requests.")
def list_(invocation: Invocation, account_id: str, start: datetime | None, end: datetime | None, limit: int) -> None:
    """List requests that run, and those that were charged, the newest first."""
    get_account(invocation.services, account_id)
    receipts = islice(list_receipts(invocation.services, account_id, start, end), limit)
    invocation.show_list([describe_receipt(receipt) for receipt in receipts], TABLE_COLUMNS)


@requests.command()
@account_argument
@period_options
def export(invocation: Invocation, account_id: str, start: datetime | None, end: datetime | None) -> None:
    """Print all receipts of a period as CSV, the newest first."""
    get_account(invocation.services, account_id)
    rows = (describe_receipt(receipt) for receipt in list_receipts(invocation.services, account_id, start, end))
    invocation.stream(rows, list(describe_receipt(RequestReceipt())))


@requests.command()
@account_argument
@click.argument("request_id", metavar="REQUEST")
def show(invocation: Invocation, account_id: str, request_id: str) -> None:
    """Show one request, charged or not."""
    request = ListRequestsRequest(account_id=account_id, request_id=request_id)
    found = call_service(invocation.services.statements.ListRequests, request)
    receipts = [*found.running, *found.requests]
    if not receipts:
        raise CallRefused("There is no such request.", Reason.NOT_FOUND)
    invocation.show(describe_receipt(receipts[0]))
