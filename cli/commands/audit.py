"""`legato audit`."""

import sys

import click

from cli.connection import call_service
from cli.options import Invocation, takes_invocation
from cli.output import show_json
from protos.metering.v1.metering_pb2 import AuditRequest

# An audit reads every row of the ledger.
TIMEOUT_S = 600.0


@click.command()
@takes_invocation
def audit(invocation: Invocation) -> None:
    """Check that balances, holds, charges and counters agree. Exits with 1 if they do not."""
    violations = list(call_service(invocation.services.credits.Audit, AuditRequest(), timeout_s=TIMEOUT_S).violations)
    if invocation.json:
        show_json({"ok": not violations, "violations": violations})
    else:
        click.echo("\n".join(violations) or "The ledger is consistent.")
    if violations:
        sys.exit(1)
