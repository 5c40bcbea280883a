"""`legato accounts`."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.bookings import OutcomeUnknown, command_line, grant
from cli.connection import CallRefused, ServiceStubs, call_service, every_page
from cli.descriptions import allowed_classes, described, money
from cli.values import LIMITS, USD, CommandT, account_argument, classes_option, limit_options, put_classes
from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1.accounts_pb2 import CloseAccountRequest, EndMembershipsRequest
from legato_protos.metering.v1.metering_pb2 import Balance, GetBalanceRequest, ListBalancesRequest
from legato_protos.router.v1.content_pb2 import EraseAccountRequest
from services.chassis.money import format_usd
from services.rules.model_classes import CLASSES, DEFAULT_CLASS

# Of an account with as many documents as it may have.
ERASE_S = 600.0
CLOSED_COLUMNS = ["account_id", "closed_at", "revoked_keys", "notes", "attachments", "memberships"]

PAGE_SIZE = 200
# The grounding sources of chats without tools, each of which an account may switch off.
GROUNDINGS = {"search": "web search", "memory": "its notes", "attachments": "its documents"}
COLUMNS = ["account_id", "name", "class", "balance_usd", *LIMITS, "grounding", "suspended_at", "created_at"]


def grounding_options(command: CommandT) -> CommandT:
    """Adds an option for each source."""
    for name, what in reversed(GROUNDINGS.items()):
        help_text = f"Let its chats use {what}, if the service is configured for it."
        add = click.option(f"--{name}", type=click.Choice(["on", "off"]), callback=_is_on, help=help_text)
        command = add(command)
    return command


def _is_on(context: click.Context, parameter: click.Parameter, switch: str | None) -> bool | None:
    return None if switch is None else switch == "on"


HELP = HelpLine(30, "Create, list and change accounts.")
accounts = command_group("accounts", HELP.text)


@accounts.command()
@click.argument("name")
@click.option("--credits", "credits_nanos", type=USD, default="0", help="Initial credit in dollars, such as 5.00.")
def create(invocation: Invocation, name: str, credits_nanos: int) -> None:
    """Create an account."""
    if credits_nanos < 0:
        raise click.BadParameter("a grant cannot be negative.", param_hint="'--credits'")
    account, balance = create_account(invocation.services, name, credits_nanos)
    invocation.show(describe(account, balance))


@accounts.command("list")
def list_(invocation: Invocation) -> None:
    """List all accounts."""
    found = list(every_account(invocation.services))
    balances = balances_of(invocation.services, [account.account_id for account in found])
    things = [describe(account, balances[account.account_id]) for account in found]
    # The column of classes is shown only if an account does not have all.
    narrowed = ["classes"] if any(thing["classes"] is not None for thing in things) else []
    invocation.show_list(things, [*COLUMNS, *narrowed])


@accounts.command()
@account_argument
def show(invocation: Invocation, account_id: str) -> None:
    """Show one account."""
    account = get_account(invocation.services, account_id)
    invocation.show(describe(account, balance_of(invocation.services, account_id)))


@accounts.command("set")
@account_argument
@click.option(
    "--class", "preferred_class", type=click.Choice(CLASSES), help="The class that `auto` selects for this account."
)
@classes_option("The classes that its keys may use, such as mezzo,forte; `all` for all of them.")
@limit_options("for each of the account's keys; 0 restores the service's default.")
@grounding_options
def set_(invocation: Invocation, account_id: str, classes: list[str] | None, **changes: Any) -> None:
    """Change an account. The change is in effect everywhere when the command returns."""
    if all(given is None for given in (classes, *changes.values())):
        raise click.UsageError(
            "nothing to change: give --class, --classes, a limit, --search, --memory or --attachments."
        )
    # The options are called like the message's fields.
    request = pb.UpdateAccountRequest(account_id=account_id, **changes)
    put_classes(request, classes)
    show_changed(invocation, call_service(invocation.services.accounts.UpdateAccount, request).account)


@accounts.command()
@account_argument
def suspend(invocation: Invocation, account_id: str) -> None:
    """Refuse all keys of an account. They are refused everywhere when the command returns."""
    request = pb.SuspendAccountRequest(account_id=account_id)
    show_changed(invocation, call_service(invocation.services.accounts.SuspendAccount, request).account)


@accounts.command()
@account_argument
def resume(invocation: Invocation, account_id: str) -> None:
    """Lift a suspension. The account's keys work everywhere when the command returns."""
    request = pb.ResumeAccountRequest(account_id=account_id)
    show_changed(invocation, call_service(invocation.services.accounts.ResumeAccount, request).account)


@accounts.command()
@click.argument("account_id", metavar="ACCOUNT", required=False)
@click.option("--again", is_flag=True, help="Repeat it for every closed account: after a restore of the router.")
def close(invocation: Invocation, account_id: str | None, again: bool) -> None:
    """Close an account for good: revoke its keys, erase its notes and documents, and end all memberships. What is left
    of its credit stays in the ledger. It can be repeated."""
    if again is (account_id is not None):
        raise click.UsageError("give an account, or --again.")
    services, ids = invocation.services, [account_id] if account_id else []
    if again:
        ids = [each.account_id for each in every_account(services) if each.HasField("close_time")]
    invocation.show_list([_close(services, each) for each in ids], CLOSED_COLUMNS)


def _close(services: ServiceStubs, account_id: str) -> dict[str, object]:
    closed = call_service(services.accounts.CloseAccount, CloseAccountRequest(account_id=account_id))
    erased = call_service(services.content.EraseAccount, EraseAccountRequest(account_id=account_id), timeout_s=ERASE_S)
    left = call_service(services.accounts.EndMemberships, EndMembershipsRequest(account_id=account_id))
    return {
        "account_id": account_id,
        **described(closed.account, "closed_at"),
        **described(closed, "revoked_keys"),
        **described(erased, "notes", "attachments"),
        "memberships": left.ended,
    }


def show_changed(invocation: Invocation, account: pb.Account) -> None:
    """Shows a changed account, even if its balance cannot be read."""
    try:
        balance = balance_of(invocation.services, account.account_id)
    except click.ClickException:
        balance = None
    invocation.show(describe(account, balance))


def create_account(services: ServiceStubs, name: str, credits_nanos: int) -> tuple[pb.Account, Balance]:
    if credits_nanos:
        # Connects before the account is created: otherwise an account could be left whose id was never printed.
        _ = services.credits
    request = pb.CreateAccountRequest(name=name)
    account = call_service(services.accounts.CreateAccount, request, repeatable=False).account
    if not credits_nanos:
        return account, Balance(account_id=account.account_id)
    try:
        return account, grant(services, account.account_id, credits_nanos)
    except OutcomeUnknown as unknown:
        raise OutcomeUnknown(f"{account.account_id} was created. {unknown.message}", unknown.reason) from None
    except CallRefused as refusal:
        again = command_line("credits", "grant", account.account_id, format_usd(credits_nanos))
        raise CallRefused(
            f"{account.account_id} was created, but got no credit ({refusal.message}): repeat with `{again}`",
            refusal.reason,
        ) from None


def get_account(services: ServiceStubs, account_id: str) -> pb.Account:
    return call_service(services.accounts.GetAccount, pb.GetAccountRequest(account_id=account_id)).account


def every_account(services: ServiceStubs) -> Iterator[pb.Account]:
    for page in every_page(services.accounts.ListAccounts, pb.ListAccountsRequest(page_size=PAGE_SIZE)):
        yield from page.accounts


def balance_of(services: ServiceStubs, account_id: str) -> Balance:
    return call_service(services.metering.GetBalance, GetBalanceRequest(account_id=account_id)).balance


def balances_of(services: ServiceStubs, account_ids: Sequence[str]) -> dict[str, Balance]:
    """Returns balances by account; 0 for one that was never granted anything."""
    balances = {account_id: Balance(account_id=account_id) for account_id in account_ids}
    for first in range(0, len(account_ids), PAGE_SIZE):
        request = ListBalancesRequest(account_ids=account_ids[first : first + PAGE_SIZE])
        for balance in call_service(services.credits.ListBalances, request).balances:
            balances[balance.account_id] = balance
    return balances


def describe(account: pb.Account, balance: Balance | None) -> dict[str, object]:
    """Describes an account; None is an unknown balance."""
    return {
        **described(account, "account_id", "name"),
        "class": account.preferred_class or DEFAULT_CLASS,
        "classes": allowed_classes(account),
        "auto_class": account.auto_class or account.preferred_class or DEFAULT_CLASS,
        **money(balance=balance and balance.balance_nanos),
        "held_nanos": balance and balance.held_nanos,
        "owed_nanos": balance and balance.owed_nanos,
        **described(account, *LIMITS),
        "grounding": [name for name in GROUNDINGS if getattr(account, name)],
        **described(account, "suspended_at", "closed_at", "created_at"),
    }
