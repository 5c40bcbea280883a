"""`legato audit`."""

import sys

import click

from cli.connection import call_service
from cli.options import Invocation, takes_invocation
from cli.output import show_json
from protos.auth.v1.users_pb2 import VerifyAuditEventsRequest
from protos.metering.v1.metering_pb2 import AuditRequest

# An audit reads every row of the ledger, and every event.
TIMEOUT_S = 600.0


@click.command()
@takes_invocation
def audit(invocation: Invocation) -> None:
    """Check that balances, holds, charges and counters agree, and that the audit log is intact. Exits with 1
    otherwise."""
    services = invocation.services
    violations = list(call_service(services.credits.Audit, AuditRequest(), timeout_s=TIMEOUT_S).violations)
    if not invocation.json:
        click.echo("\n".join(violations) or "The ledger is consistent.")
    log = call_service(services.users.VerifyAuditEvents, VerifyAuditEventsRequest(), timeout_s=TIMEOUT_S)
    broken = [f"audit log: the chain is broken at event {event_no}" for event_no in log.broken_event_nos]
    if invocation.json:
        show_json({"ok": not violations + broken, "violations": violations + broken, "audit_events": log.events})
    else:
        click.echo("\n".join(broken) or f"The audit log is intact: {log.events:,} events.")
    if violations or broken:
        sys.exit(1)
