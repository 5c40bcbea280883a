"""`legato audit`."""

import sys

import click

from cli.commands.accounts import get_account
from cli.connection import call_service
from cli.options import Invocation, takes_invocation
from cli.output import show_json
from protos.metering.v1.metering_pb2 import AuditRequest
from protos.metering.v1.statements_pb2 import AuditAccountRequest

# An audit reads every row of the ledger.
TIMEOUT_S = 600.0


@click.command()
@click.option("--account", "account_id", metavar="ID", help="Audit one account.  [default: all]")
@takes_invocation
def audit(invocation: Invocation, account_id: str | None) -> None:
    """Check that balances, holds, charges and counters agree. Exits with 1 if they do not."""
    if account_id is None:
        violations = list(
            call_service(invocation.services.credits.Audit, AuditRequest(), timeout_s=TIMEOUT_S).violations
        )
    else:
        get_account(invocation.services, account_id)
        request = AuditAccountRequest(account_id=account_id)
        method = invocation.services.statements.AuditAccount
        violations = list(call_service(method, request, timeout_s=TIMEOUT_S).violations)
    if invocation.json:
        show_json({"ok": not violations, "violations": violations})
    else:
        click.echo("\n".join(violations) or "The ledger is consistent.")
    if violations:
        sys.exit(1)
