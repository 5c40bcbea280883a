"""`legato credits`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cli import bookings
from cli.accounts import balance_of, get_account
from cli.money import USD
from cli.options import Invocation, shared_options, takes_invocation
from protos.metering.v1.metering_pb2 import Balance
from services.chassis.money import format_usd

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@click.group()
@shared_options
def credits() -> None:
    """Grant and adjust credit, and see balances."""


# An amount may begin with a minus: what is no option of ours is left to the arguments.
AMOUNTS_MAY_BE_NEGATIVE = {"ignore_unknown_options": True}


def id_option(command: CommandT) -> CommandT:
    help_text = "Under the same id it counts once, however often it is repeated.  [default: a new one]"
    return click.option("--id", "booking_id", help=help_text)(command)


@credits.command("grant", context_settings=AMOUNTS_MAY_BE_NEGATIVE)
@click.argument("account_id", metavar="ID")
@click.argument("amount_nanos", metavar="AMOUNT", type=USD)
@id_option
@takes_invocation
def grant_(invocation: Invocation, account_id: str, amount_nanos: int, booking_id: str | None) -> None:
    """Add credit, in dollars: `legato credits grant ID 5.00`."""
    if amount_nanos <= 0:
        raise click.BadParameter("a grant is more than nothing; `credits adjust` also takes away.", param_hint="AMOUNT")
    # Metering knows no accounts, only balances: a slip in the id would make money nobody has.
    get_account(invocation.services, account_id)
    invocation.show(describe(bookings.grant(invocation.services, account_id, amount_nanos, booking_id)))


@credits.command(context_settings=AMOUNTS_MAY_BE_NEGATIVE)
@click.argument("account_id", metavar="ID")
@click.argument("amount_nanos", metavar="AMOUNT", type=USD)
@click.option("--reason", required=True, help="Why, for the ledger.")
@id_option
@takes_invocation
def adjust(invocation: Invocation, account_id: str, amount_nanos: int, reason: str, booking_id: str | None) -> None:
    """Correct a balance, up or down: `legato credits adjust ID -1.25 --reason "charged twice"`."""
    if amount_nanos == 0:
        raise click.BadParameter("an adjustment is not zero.", param_hint="AMOUNT")
    get_account(invocation.services, account_id)
    invocation.show(describe(bookings.adjust(invocation.services, account_id, amount_nanos, reason, booking_id)))


@credits.command()
@click.argument("account_id", metavar="ID")
@takes_invocation
def balance(invocation: Invocation, account_id: str) -> None:
    """Show what an account has, and how much of it running requests hold."""
    get_account(invocation.services, account_id)
    invocation.show(describe(balance_of(invocation.services, account_id)))


def describe(balance: Balance) -> dict[str, Any]:
    return {
        "account_id": balance.account_id,
        "balance_usd": format_usd(balance.balance_nanos),
        "balance_nanos": balance.balance_nanos,
        "held_usd": format_usd(balance.held_nanos),
        "held_nanos": balance.held_nanos,
    }
