"""`legato limits`."""

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.connection import call_service
from cli.descriptions import described, money, rfc3339, value_of
from cli.spend_limits import PERIODS, spend_limit_options, to_spend_limits
from cli.values import account_argument
from legato_protos.auth.v1.auth_pb2 import SetKeySpendLimitsRequest
from legato_protos.metering.v1 import spend_limits_pb2 as pb

# It reads the usage of all accounts with limits.
RECOUNT_TIMEOUT_S = 600.0
COLUMNS = ["key_id", "period", "limit_usd", "spent_usd", "held_usd", "starts_anew"]

HELP = HelpLine(90, "Show and set how much an account or a key may spend.")
limits = command_group("limits", HELP.text)


@limits.command()
@account_argument
def show(invocation: Invocation, account_id: str) -> None:
    """Show the spend limits of an account and of its keys, and what was spent."""
    get_account(invocation.services, account_id)
    request = pb.ListSpendLimitsRequest(account_id=account_id)
    spends = call_service(invocation.services.spend_limits.ListSpendLimits, request).spends
    invocation.show_list([row for spend in spends for row in describe(spend)], COLUMNS)


@limits.command("set")
@account_argument
@click.option("--key", "key_id", metavar="KEY", default="", help="Limit one key.  [default: the whole account]")
@spend_limit_options
def set_(invocation: Invocation, account_id: str, key_id: str, **amounts: int | None) -> None:
    """Change spend limits: `legato limits set ID --key KEY --day 5.00 --month none`. The others stay as they are."""
    if all(given is None for given in amounts.values()):
        raise click.UsageError("nothing to change: give --day, --month or --total.")
    services = invocation.services
    get_account(services, account_id)
    known = pb.SpendLimits()
    asked = pb.ListSpendLimitsRequest(account_id=account_id, key_ids=[key_id] if key_id else [])
    for found in call_service(services.spend_limits.ListSpendLimits, asked).spends:
        if found.key_id == key_id:
            known = found.limits
    wanted = to_spend_limits(known, amounts)
    if key_id:
        of_key = SetKeySpendLimitsRequest(account_id=account_id, key_id=key_id, spend_limits=wanted)
        spend = call_service(services.keys.SetKeySpendLimits, of_key).spend
    else:
        of_account = pb.SetSpendLimitsRequest(account_id=account_id, limits=wanted)
        spend = call_service(services.spend_limits.SetSpendLimits, of_account).spend
    invocation.show_list(describe(spend), COLUMNS)


@limits.command()
def recount(invocation: Invocation) -> None:
    """Correct what was spent and is held, from usage and holds: where `legato audit` says that these differ."""
    recounted = call_service(
        invocation.services.spend_limits.RecountSpends, pb.RecountSpendsRequest(), timeout_s=RECOUNT_TIMEOUT_S
    )
    invocation.show({"accounts": recounted.accounts, "corrected_accounts": recounted.corrected_accounts})


def describe(spend: pb.Spend) -> list[dict[str, object]]:
    """Returns a row for each period."""
    ends = {"day": spend.day_end_time, "month": spend.month_end_time}
    return [
        {
            **described(spend, "account_id", "key_id"),
            "period": period,
            **money(limit=value_of(spend.limits, f"{period}_nanos"), spent=value_of(spend, f"{period}_spent_nanos")),
            **money(held=spend.held_nanos),
            "starts_anew": rfc3339(ends[period]) if period in ends else None,
        }
        for period in PERIODS
    ]
