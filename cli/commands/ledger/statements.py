"""Reads ledgers and receipts page by page, for the commands that print them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import click

from cli.commands.ledger.usage import Moment
from cli.connection import ServiceStubs, every_page
from cli.descriptions import described, money, tokens_of
from protos.metering.v1 import statements_pb2 as pb

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

PAGE_SIZE = 1_000
# Longer than metering takes to restart: a long export goes on afterwards.
PATIENCE_S = 10.0
PRICES = ("input_nanos_per_million", "cached_input_nanos_per_million", "output_nanos_per_million")


def period_options(command: CommandT) -> CommandT:
    add_start = click.option("--from", "start", type=Moment(), help="Start of the period.  [default: the first]")
    add_end = click.option("--to", "end", type=Moment(), help="End of the period, exclusive.  [default: the last]")
    return add_start(add_end(command))


def list_entries(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[pb.LedgerEntry]:
    """Yields the entries of a period, the oldest first."""
    request = pb.ListLedgerEntriesRequest(account_id=account_id, page_size=PAGE_SIZE)
    _set_period(request, start, end)
    for page in every_page(services.statements.ListLedgerEntries, request, timeout_s=PATIENCE_S):
        yield from page.entries


def list_receipts(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[pb.RequestReceipt]:
    """Yields the receipts of a period, those that run first, and then the newest first."""
    request = pb.ListRequestsRequest(account_id=account_id, page_size=PAGE_SIZE)
    _set_period(request, start, end)
    for page in every_page(services.statements.ListRequests, request, timeout_s=PATIENCE_S):
        yield from page.running
        yield from page.requests


def describe_ledger_entry(entry: pb.LedgerEntry) -> dict[str, Any]:
    return {
        **described(entry, "entry_id", "time", "kind"),
        **money(amount=entry.amount_nanos, balance=entry.balance_nanos),
        "id": entry.reference_id,
        **described(entry, "class", "key_id"),
        **tokens_of(entry.usage if entry.HasField("usage") else None),
        "price_version": entry.price_version or None,
        **described(entry, "basis", "end", "loss_nanos", "reason"),
    }


def describe_receipt(receipt: pb.RequestReceipt) -> dict[str, Any]:
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
    }


def _set_period(
    request: pb.ListLedgerEntriesRequest | pb.ListRequestsRequest, start: datetime | None, end: datetime | None
) -> None:
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from must be before --to.")
    if start is not None:
        request.start_time.FromDatetime(start)
    if end is not None:
        request.end_time.FromDatetime(end)
