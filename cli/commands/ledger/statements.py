"""Reads ledgers and receipts page by page, for the commands that print them."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import click

from cli.commands.ledger.usage import Moment
from cli.connection import ServiceStubs, call_service
from cli.output import rfc3339_of
from protos.metering.v1.metering_pb2 import Basis, End, RequestState
from protos.metering.v1.statements_pb2 import (
    LedgerEntry,
    LedgerEntryKind,
    ListLedgerEntriesRequest,
    ListRequestsRequest,
    RequestReceipt,
)
from services.chassis.money import format_usd

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

PAGE_SIZE = 1_000
# Longer than metering takes to restart: a long export goes on afterwards.
PATIENCE_S = 10.0

STATEMENT_COLUMNS = [
    "entry_id", "time", "kind", "amount_usd", "amount_nanos", "balance_usd", "balance_nanos", "id", "class", "key_id",
    "prompt_tokens", "cached_tokens", "completion_tokens", "price_version", "basis", "end", "loss_nanos", "reason",
]  # fmt: skip
RECEIPT_COLUMNS = [
    "id", "state", "reserved", "ended", "class", "key_id", "prompt_tokens", "cached_tokens", "completion_tokens",
    "cost_usd", "cost_nanos", "charged_usd", "charged_nanos", "loss_nanos", "held_nanos", "price_version",
    "input_nanos_per_million", "cached_input_nanos_per_million", "output_nanos_per_million", "basis", "end",
]  # fmt: skip


def period_options(command: CommandT) -> CommandT:
    add_start = click.option("--from", "start", type=Moment(), help="Start of the period.  [default: the first]")
    add_end = click.option("--to", "end", type=Moment(), help="End of the period, exclusive.  [default: the last]")
    return add_start(add_end(command))


def list_entries(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[LedgerEntry]:
    """Yields the entries of a period, the oldest first."""
    page_token = ""
    while True:
        request = ListLedgerEntriesRequest(account_id=account_id, page_size=PAGE_SIZE, page_token=page_token)
        _set_period(request, start, end)
        page = call_service(services.statements.ListLedgerEntries, request, timeout_s=PATIENCE_S)
        yield from page.entries
        page_token = page.next_page_token
        if not page_token:
            return


def list_receipts(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[RequestReceipt]:
    """Yields the receipts of a period, those that run first, and then the newest first."""
    page_token = ""
    while True:
        request = ListRequestsRequest(account_id=account_id, page_size=PAGE_SIZE, page_token=page_token)
        _set_period(request, start, end)
        page = call_service(services.statements.ListRequests, request, timeout_s=PATIENCE_S)
        yield from page.running
        yield from page.requests
        page_token = page.next_page_token
        if not page_token:
            return


def describe_ledger_entry(entry: LedgerEntry) -> dict[str, Any]:
    usage = entry.usage if entry.HasField("usage") else None
    return {
        "entry_id": entry.entry_id,
        "time": rfc3339_of(entry.time),
        "kind": word_of(LedgerEntryKind.Name(entry.kind), "LEDGER_ENTRY_KIND_"),
        "amount_usd": format_usd(entry.amount_nanos),
        "amount_nanos": entry.amount_nanos,
        "balance_usd": format_usd(entry.balance_nanos),
        "balance_nanos": entry.balance_nanos,
        "id": entry.reference_id,
        "class": entry.class_id or None,
        "key_id": entry.key_id or None,
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "cached_tokens": None if usage is None else usage.cached_tokens,
        "completion_tokens": None if usage is None else usage.completion_tokens,
        "price_version": entry.price_version or None,
        "basis": word_of(Basis.Name(entry.basis), "BASIS_"),
        "end": word_of(End.Name(entry.end), "END_"),
        "loss_nanos": entry.loss_nanos,
        "reason": entry.reason or None,
    }


def describe_receipt(receipt: RequestReceipt) -> dict[str, Any]:
    price = receipt.price if receipt.HasField("price") else None
    return {
        "id": receipt.request_id,
        "state": word_of(RequestState.Name(receipt.state), "REQUEST_STATE_"),
        "reserved": rfc3339_of(receipt.reserve_time) if receipt.HasField("reserve_time") else None,
        "ended": rfc3339_of(receipt.end_time) if receipt.HasField("end_time") else None,
        "class": receipt.class_id,
        "key_id": receipt.key_id,
        "prompt_tokens": receipt.usage.prompt_tokens,
        "cached_tokens": receipt.usage.cached_tokens,
        "completion_tokens": receipt.usage.completion_tokens,
        "cost_usd": format_usd(receipt.cost_nanos),
        "cost_nanos": receipt.cost_nanos,
        "charged_usd": format_usd(receipt.charged_nanos),
        "charged_nanos": receipt.charged_nanos,
        "loss_nanos": receipt.loss_nanos,
        "held_nanos": receipt.held_nanos,
        "price_version": None if price is None else price.version,
        "input_nanos_per_million": None if price is None else price.input_nanos_per_million,
        "cached_input_nanos_per_million": None if price is None else price.cached_input_nanos_per_million,
        "output_nanos_per_million": None if price is None else price.output_nanos_per_million,
        "basis": word_of(Basis.Name(receipt.basis), "BASIS_"),
        "end": word_of(End.Name(receipt.end), "END_"),
    }


def word_of(name: str, prefix: str) -> str | None:
    """Returns an enum's value as a word; None where it is not set."""
    word = name.removeprefix(prefix).lower()
    return None if word == "unspecified" else word


def _set_period(
    request: ListLedgerEntriesRequest | ListRequestsRequest, start: datetime | None, end: datetime | None
) -> None:
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from must be before --to.")
    if start is not None:
        request.start_time.FromDatetime(start)
    if end is not None:
        request.end_time.FromDatetime(end)
