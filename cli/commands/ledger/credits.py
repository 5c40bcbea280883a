"""`legato credits`."""

from collections.abc import Iterator
from datetime import datetime

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account import bookings
from cli.commands.account.accounts import balance_of, get_account
from cli.connection import EXPORT_PAGE_SIZE, EXPORT_TIMEOUT_S, CallRefused, ServiceStubs, call_service, every_page
from cli.descriptions import described, money, rfc3339, tokens_of
from cli.output import show_json, show_table
from cli.values import USD, CommandT, Moment, account_argument, period_options, put_period
from legato_protos.metering.v1.metering_pb2 import (
    Balance,
    BookUnmatchedRequest,
    CreditEntry,
    CreditKind,
    ListCreditsRequest,
    UnmatchedSettlement,
)
from legato_protos.metering.v1.statements_pb2 import LedgerEntry, ListLedgerEntriesRequest
from legato_protos.payments.v1.payments_pb2 import BookPaymentRequest, ListedPayment, ListPaymentsRequest
from services.chassis.errors import Reason

COLUMNS = ["time", "kind", "amount_usd", "balance_usd", "id", "reason"]

HELP = HelpLine(80, "Grant and adjust credit, and show balances.")
credits = command_group("credits", HELP.text)


# An amount may begin with a minus, so unknown options are passed on as arguments.
AMOUNTS_MAY_BE_NEGATIVE = {"ignore_unknown_options": True}


def id_option(command: CommandT) -> CommandT:
    help_text = "Idempotency id: repeats with the same id count once.  [default: a new one]"
    return click.option("--id", "booking_id", help=help_text)(command)


@credits.command("grant", context_settings=AMOUNTS_MAY_BE_NEGATIVE)
@account_argument
@click.argument("amount_nanos", metavar="AMOUNT", type=USD)
@id_option
def grant_(invocation: Invocation, account_id: str, amount_nanos: int, booking_id: str | None) -> None:
    """Add credit, in dollars: `legato credits grant ID 5.00`."""
    if amount_nanos <= 0:
        raise click.BadParameter(
            "a grant must be more than zero; to remove credit use `credits adjust`.", param_hint="AMOUNT"
        )
    # Metering knows no accounts, only balances: a mistyped id would create credit that no account has.
    get_account(invocation.services, account_id)
    invocation.show(describe(bookings.grant(invocation.services, account_id, amount_nanos, booking_id)))


@credits.command(context_settings=AMOUNTS_MAY_BE_NEGATIVE)
@account_argument
@click.argument("amount_nanos", metavar="AMOUNT", type=USD)
@click.option("--reason", required=True, help="The reason, recorded in the ledger.")
@id_option
def adjust(invocation: Invocation, account_id: str, amount_nanos: int, reason: str, booking_id: str | None) -> None:
    """Correct a balance, up or down: `legato credits adjust ID -1.25 --reason "charged twice"`."""
    if amount_nanos == 0:
        raise click.BadParameter("an adjustment must not be zero.", param_hint="AMOUNT")
    get_account(invocation.services, account_id)
    invocation.show(describe(bookings.adjust(invocation.services, account_id, amount_nanos, reason, booking_id)))


@credits.command()
@account_argument
def balance(invocation: Invocation, account_id: str) -> None:
    """Show an account's balance, and how much of it running requests hold, and what it owes for returned payments."""
    get_account(invocation.services, account_id)
    invocation.show(describe(balance_of(invocation.services, account_id)))


@credits.command()
@account_argument
@period_options
def statement(invocation: Invocation, account_id: str, start: datetime | None, end: datetime | None) -> None:
    """Print every entry of an account's ledger as CSV, oldest first, with the balance after each."""
    get_account(invocation.services, account_id)
    rows = (describe_ledger_entry(entry) for entry in list_entries(invocation.services, account_id, start, end))
    invocation.stream(rows, list(describe_ledger_entry(LedgerEntry())))


@credits.command("book-payments")
@click.option("--from", "start", type=Moment(), required=True, help="The time of the backup.")
def book_payments(invocation: Invocation, start: datetime) -> None:
    """Read card payments since a time from Stripe, and book what a restored ledger does not have."""
    services, request = invocation.services, ListPaymentsRequest()
    request.start_time.FromDatetime(start)
    found = call_service(services.payments.ListPayments, request, timeout_s=EXPORT_TIMEOUT_S).payments
    known = {account_id: _is_known(services, account_id) for account_id in sorted({each.account_id for each in found})}
    rows = [
        {
            **described(payment, "payment_id", "account_id", "amount_cents"),
            "state": _book(services, payment) if known[payment.account_id] else "no such account",
        }
        for payment in found
    ]
    invocation.show_list(rows, ["payment_id", "account_id", "amount_cents", "state"])


@credits.command("book-requests")
@click.option("--dry-run", is_flag=True, help="List them only.")
def book_requests(invocation: Invocation, dry_run: bool) -> None:
    """Book requests that edges have in their journals and a restored ledger does not know; edges offer each every 30 s.
    Those of accounts that do not exist stay."""
    services, rows = invocation.services, []
    for metering in services.meterings:
        found = call_service(metering.BookUnmatched, BookUnmatchedRequest()).settlements
        known = {
            account_id: _is_known(services, account_id) for account_id in sorted({each.account_id for each in found})
        }
        ids = [each.request_id for each in found if known[each.account_id] and each.class_id]
        if ids and not dry_run:
            request = BookUnmatchedRequest(request_ids=ids)
            found = call_service(metering.BookUnmatched, request, timeout_s=EXPORT_TIMEOUT_S).settlements
        for each in found:
            state = _state_of(each) if known.get(each.account_id, True) else "no such account"
            rows.append({**described(each, "request_id", "account_id", "class_id"), **tokens_of(each.usage)})
            rows[-1] |= {**money(cost=each.cost_nanos), "state": state}
    invocation.show_list(rows, ["request_id", "account_id", "class_id", "cost_usd", "state"])


def _state_of(settlement: UnmatchedSettlement) -> str:
    if settlement.HasField("charged_nanos"):
        return "booked"
    if settlement.refusal:
        return f"refused: {settlement.refusal}"
    return "not booked" if settlement.class_id else "its class is not known"


def _book(services: ServiceStubs, payment: ListedPayment) -> str:
    request = BookPaymentRequest(payment_id=payment.payment_id, opens_account=bool(payment.account_id))
    try:
        is_ours = call_service(services.payments.BookPayment, request).is_booked
    except CallRefused as refused:
        # The others are booked; this one is told in the log of payments.
        return f"refused: {refused.message}"
    return "booked" if is_ours else "not ours"


def _is_known(services: ServiceStubs, account_id: str) -> bool:
    """Returns whether auth has an account: one that was created after the backup is gone. An older payment has no id
    here."""
    if not account_id:
        return True
    try:
        get_account(services, account_id)
    except CallRefused as refused:
        if refused.reason is Reason.NOT_FOUND:
            return False
        raise
    return True


@credits.command("list")
@account_argument
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of entries.  [default: all]")
@click.option("--page", "page_token", metavar="TOKEN", default="", help="Continue a truncated list: its next_page.")
def list_(invocation: Invocation, account_id: str, limit: int | None, page_token: str) -> None:
    """List grants, adjustments and each day's charges, oldest first, with the balance after each."""
    get_account(invocation.services, account_id)
    entries: list[CreditEntry] = []
    while True:
        size = EXPORT_PAGE_SIZE if limit is None else min(EXPORT_PAGE_SIZE, limit - len(entries))
        request = ListCreditsRequest(account_id=account_id, page_size=size, page_token=page_token)
        page = call_service(invocation.services.credits.ListCredits, request)
        entries += page.entries
        page_token = page.next_page_token
        if not page_token or len(entries) == limit:
            break
    listed = [describe_entry(entry) for entry in entries]
    if invocation.json:
        show_json({"account_id": account_id, "entries": listed, "next_page": page_token or None})
        return
    show_table(COLUMNS, [[entry[column] for column in COLUMNS] for entry in listed])
    if page_token:
        again = bookings.command_line("credits", "list", account_id, "--limit", str(limit), "--page", page_token)
        click.echo(f"More entries: {again}", err=True)


def list_entries(
    services: ServiceStubs, account_id: str, start: datetime | None, end: datetime | None
) -> Iterator[LedgerEntry]:
    """Yields the entries of a period, the oldest first."""
    request = ListLedgerEntriesRequest(account_id=account_id, page_size=EXPORT_PAGE_SIZE)
    put_period(request, start, end)
    for page in every_page(services.statements.ListLedgerEntries, request, timeout_s=EXPORT_TIMEOUT_S):
        yield from page.entries


def describe_ledger_entry(entry: LedgerEntry) -> dict[str, object]:
    return {
        **described(entry, "entry_id", "time", "kind"),
        **money(amount=entry.amount_nanos, balance=entry.balance_nanos),
        "id": entry.reference_id,
        **described(entry, "class", "key_id"),
        **tokens_of(entry.usage if entry.HasField("usage") else None),
        "price_version": entry.price_version or None,
        **described(entry, "basis", "end", "loss_nanos", "reason"),
    }


def describe_entry(entry: CreditEntry) -> dict[str, object]:
    is_day = entry.kind == CreditKind.CREDIT_KIND_CHARGES
    time = rfc3339(entry.time)
    return {
        "time": time[: len("2026-11-15")] if is_day else time,
        **described(entry, "kind"),
        **money(amount=entry.amount_nanos, balance=entry.balance_nanos),
        "id": entry.booking_id or None,
        **described(entry, "reason"),
    }


def describe(balance: Balance) -> dict[str, object]:
    amounts = money(balance=balance.balance_nanos, held=balance.held_nanos, owed=balance.owed_nanos)
    return {"account_id": balance.account_id, **amounts}
