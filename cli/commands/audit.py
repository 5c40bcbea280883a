"""`legato audit`."""

import sys

import click

from cli.commands.accounts import get_account
from cli.connection import call_service
from cli.options import Invocation, takes_invocation
from cli.output import show_json
from protos.auth.v1.users_pb2 import VerifyAuditEventsRequest
from protos.metering.v1.metering_pb2 import AuditRequest
from protos.metering.v1.statements_pb2 import AuditAccountRequest

# An audit reads every row of the ledger, and every event.
TIMEOUT_S = 600.0


@click.command()
@click.option("--account", "account_id", metavar="ID", help="Audit one account.  [default: all]")
@takes_invocation
def audit(invocation: Invocation, account_id: str | None) -> None:
    """Check that balances, holds, charges and counters agree, and that the audit log is intact. Exits with 1
    otherwise."""
    services = invocation.services
    report: dict[str, int] = {}
    if account_id is not None:
        get_account(services, account_id)
        request = AuditAccountRequest(account_id=account_id)
        found = call_service(services.statements.AuditAccount, request, timeout_s=TIMEOUT_S)
        violations = list(found.violations)
    else:
        violations = list(call_service(services.credits.Audit, AuditRequest(), timeout_s=TIMEOUT_S).violations)
    if not invocation.json:
        click.echo("\n".join(violations) or "The ledger is consistent.")
    if account_id is None:
        log = call_service(services.users.VerifyAuditEvents, VerifyAuditEventsRequest(), timeout_s=TIMEOUT_S)
        broken = [f"audit log: the chain is broken at event {event_no}" for event_no in log.broken_event_nos]
        if not invocation.json:
            click.echo("\n".join(broken) or f"The audit log is intact: {log.events:,} events.")
        violations += broken
        report = {"audit_events": log.events}
    if invocation.json:
        show_json({"ok": not violations, "violations": violations, **report})
    if violations:
        sys.exit(1)
