"""`legato callers`."""

from typing import Any

import click

from cli.command import HelpLine, Invocation, command_group
from cli.connection import call_service, every_page
from cli.descriptions import described
from cli.values import LIMITS, limit_options
from legato_protos.auth.v1 import callers_pb2 as pb

PAGE_SIZE = 200
COLUMNS = ["caller", "account_id", "all_accounts", "created_at", "revoked_at"]

HELP = HelpLine(50, "Let internal programs call for accounts.")
callers = command_group("callers", HELP.text)

name_argument = click.argument("caller", metavar="NAME")


@callers.command()
@name_argument
@click.option("--account", "account_id", metavar="ID", default="", help="An account that it may call for.")
@click.option("--all-accounts", is_flag=True, help="It may call for all accounts, also for those created later.")
@limit_options("for each account.  [default: the account's limit]")
def grant(invocation: Invocation, caller: str, account_id: str, all_accounts: bool, **limits: Any) -> None:
    """Let the program with the certificate caller/NAME call for accounts. Again, with other limits: change them.

    The account pays for what the program asks. It is in effect everywhere when the command returns.
    """
    if bool(account_id) == all_accounts:
        raise click.UsageError("give --account or --all-accounts.")
    request = pb.GrantCallerRequest(caller=caller, account_id=account_id, all_accounts=all_accounts, **limits)
    invocation.show(describe(call_service(invocation.services.keys.GrantCaller, request).grant))


@callers.command("list")
def list_(invocation: Invocation) -> None:
    """List which programs may call for which accounts, and which no longer."""
    pages = every_page(invocation.services.keys.ListCallers, pb.ListCallersRequest(page_size=PAGE_SIZE))
    things = [describe(granted) for page in pages for granted in page.grants]
    # The columns of limits are shown only if a grant has one.
    own = [name for name in LIMITS if any(thing[name] is not None for thing in things)]
    invocation.show_list(things, [*COLUMNS, *own])


@callers.command()
@name_argument
@click.option("--account", "account_id", metavar="ID", default="", help="Only this account.  [default: all grants]")
def revoke(invocation: Invocation, caller: str, account_id: str) -> None:
    """Let a program call for accounts no longer. It is refused everywhere when the command returns."""
    request = pb.RevokeCallerRequest(caller=caller, account_id=account_id)
    remaining = call_service(invocation.services.keys.RevokeCaller, request).remaining_grants
    if any(not granted.account_id for granted in remaining):
        message = f"{caller} may still call for {account_id}: it is granted all accounts."
    else:
        message = f"{caller} may no longer call for {account_id or 'any account'}."
    things = [describe(granted) for granted in remaining]
    invocation.report(message, {"caller": caller, "remaining_grants": things})


def describe(granted: pb.CallerGrant) -> dict[str, object]:
    return {
        **described(granted, "caller", "account_id"),
        "all_accounts": not granted.account_id,
        **described(granted, "created_at", "revoked_at", *LIMITS),
    }
