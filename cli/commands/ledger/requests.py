"""`legato requests`."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.connection import EXPORT_PAGE_SIZE, EXPORT_TIMEOUT_S, CallRefused, ServiceStubs, call_service, every_page
from cli.descriptions import described, money, tokens_of
from cli.values import account_argument, period_options, put_period
from legato_protos.metering.v1.statements_pb2 import ListRequestsRequest, RequestReceipt
from services.chassis.errors import Reason
from services.rules.usage import COLUMNS

TABLE_COLUMNS = ["id", "state", "ended", "class", *COLUMNS, "charged_usd", "end"]

PRICES = ("input_nanos_per_million", "cached_input_nanos_per_million", "output_nanos_per_million")

HELP = HelpLine(150, "Show the receipts of an account's requests.")
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


def list_receipts(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[RequestReceipt]:
    """Yields the receipts of a period, those that run first, and then the newest first."""
    request = ListRequestsRequest(account_id=account_id, page_size=EXPORT_PAGE_SIZE)
    put_period(request, start, end)
    for page in every_page(services.statements.ListRequests, request, timeout_s=EXPORT_TIMEOUT_S):
        yield from page.running
        yield from page.requests


def describe_receipt(receipt: RequestReceipt) -> dict[str, object]:
    price = receipt.price if receipt.HasField("price") else None
    return {
        "id": receipt.request_id,
        **described(receipt, "state", "reserved", "ended", "class", "key_id"),
        **tokens_of(receipt.usage),
        **money(cost=receipt.cost_nanos, charged=receipt.charged_nanos),
        **described(receipt, "loss_nanos", "held_nanos"),
        "price_version": price and price.version,
        **(described(price, *PRICES) if price else dict.fromkeys(PRICES)),
        **described(receipt, "basis", "end"),
        "routes_version": receipt.routes_version or None,
        "first_token_ms": receipt.first_token_ms if receipt.HasField("first_token_ms") else None,
        "duration_ms": receipt.duration_ms if receipt.HasField("duration_ms") else None,
        **described(receipt, "api"),
    }
