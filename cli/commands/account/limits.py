"""`legato limits`."""

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.connection import ServiceStubs, call_service
from cli.descriptions import described, money, rfc3339, value_of
from cli.values import USD, UsdAmount, account_argument
from legato_protos.auth.v1.auth_pb2 import GetKeyRequest
from legato_protos.metering.v1 import spend_limits_pb2 as pb

PERIODS = ("day", "month", "total")
UNLIMITED = "none"
# It reads the usage of all accounts with limits.
RECOUNT_TIMEOUT_S = 600.0
COLUMNS = ["key_id", "period", "limit_usd", "spent_usd", "held_usd", "starts_anew"]


class LimitAmount(UsdAmount):
    """Dollars, or `none`, which is -1 here."""

    name = "amount|none"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == UNLIMITED:
            return -1
        nanos = USD.convert(value, param, ctx)
        if nanos < 0:
            self.fail("a limit must not be negative.", param, ctx)
        return nanos


LIMIT = LimitAmount()

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
@click.option("--day", type=LIMIT, help="Dollars a day, in UTC; `none` for no limit.")
@click.option("--month", type=LIMIT, help="Dollars a calendar month, in UTC; `none` for no limit.")
@click.option("--total", type=LIMIT, help="Dollars in all; `none` for no limit.")
def set_(invocation: Invocation, account_id: str, key_id: str, **amounts: int | None) -> None:
    """Change spend limits: `legato limits set ID --key KEY --day 5.00 --month none`. The others stay as they are."""
    if all(given is None for given in amounts.values()):
        raise click.UsageError("nothing to change: give --day, --month or --total.")
    get_account(invocation.services, account_id)
    if key_id:
        require_key(invocation.services, account_id, key_id)
    wanted = pb.SpendLimits()
    asked = pb.ListSpendLimitsRequest(account_id=account_id, key_ids=[key_id] if key_id else [])
    for found in call_service(invocation.services.spend_limits.ListSpendLimits, asked).spends:
        if found.key_id == key_id:
            wanted.CopyFrom(found.limits)
    for period, nanos in amounts.items():
        if nanos is not None and nanos >= 0:
            setattr(wanted, f"{period}_nanos", nanos)
        elif nanos is not None:
            wanted.ClearField(f"{period}_nanos")  # type: ignore[arg-type]
    request = pb.SetSpendLimitsRequest(account_id=account_id, key_id=key_id, limits=wanted)
    spend = call_service(invocation.services.spend_limits.SetSpendLimits, request).spend
    invocation.show_list(describe(spend), COLUMNS)


def require_key(services: ServiceStubs, account_id: str, key_id: str) -> None:
    """Raises unless the key is the account's. Metering, which has no keys, takes the command line's word for it."""
    found = call_service(services.keys.GetKey, GetKeyRequest(key_id=key_id))
    if found.key.account_id != account_id:
        raise click.ClickException(f"{key_id} is not a key of {account_id}.")


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
