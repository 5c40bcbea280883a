"""`legato audit`."""

import sys
from pathlib import Path

import click

from cli.command import HelpLine, Invocation, command
from cli.commands.account.accounts import get_account
from cli.connection import ServiceStubs, call_service
from cli.output import show_json
from legato_protos.auth.v1.users_pb2 import VerifyAuditEventsRequest
from legato_protos.metering.v1.metering_pb2 import AuditRequest, ListClosingsRequest
from legato_protos.metering.v1.statements_pb2 import AuditAccountRequest

# An audit reads every row since the last closed month, and every event.
TIMEOUT_S = 600.0

HELP = HelpLine(200, "Check that the ledger is consistent.")


@command()
@click.option("--account", "account_id", metavar="ID", help="Audit one account.  [default: all]")
@click.option("--month", metavar="YYYY-MM", help="Also verify the entries of this closed month.")
@click.option("--all", "all_months", is_flag=True, help="Also verify the entries of all closed months.")
@click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only verify a file of archived entries against the closing of its month.",
)
def audit(
    invocation: Invocation, account_id: str | None, month: str | None, all_months: bool, archive: Path | None
) -> None:
    """Check that balances, holds, charges and counters agree since the last closed month, and that the closed months
    and the audit log are intact. Exits with 1 otherwise."""
    if sum(map(bool, (account_id, month, all_months, archive))) > 1:
        raise click.UsageError("--account, --month, --all and --archive exclude each other.")
    services = invocation.services
    if archive is not None:
        _show(invocation, _verify_archive(services, archive), f"{archive.name} is what was closed.")
        return
    if account_id is not None:
        get_account(services, account_id)
        request = AuditAccountRequest(account_id=account_id)
        found = call_service(services.statements.AuditAccount, request, timeout_s=TIMEOUT_S)
        _show(invocation, list(found.violations), "The ledger is consistent.")
        return
    asked = AuditRequest(month=month or "", all_months=all_months)
    violations = list(call_service(services.credits.Audit, asked, timeout_s=TIMEOUT_S).violations)
    closings = call_service(services.credits.ListClosings, ListClosingsRequest()).closings
    if not invocation.json:
        click.echo("\n".join(violations) or "The ledger is consistent.")
        if closings:
            click.echo(f"Closed months: {len(closings)}, the last {closings[-1].month}: {closings[-1].closing_hash}")
    log = call_service(services.audit.VerifyAuditEvents, VerifyAuditEventsRequest(), timeout_s=TIMEOUT_S)
    broken = [f"audit log: the chain is broken at event {event_no}" for event_no in log.broken_event_nos]
    if not invocation.json:
        click.echo("\n".join(broken) or f"The audit log is intact: {log.events:,} events.")
    report: dict[str, object] = {"audit_events": log.events, "closed_months": len(closings)}
    if closings:
        report |= {"last_closed_month": closings[-1].month, "closing_hash": closings[-1].closing_hash}
    if invocation.json:
        show_json({"ok": not violations + broken, "violations": violations + broken, **report})
    if violations or broken:
        sys.exit(1)


def _show(invocation: Invocation, violations: list[str], if_none: str) -> None:
    invocation.report("\n".join(violations) or if_none, {"ok": not violations, "violations": violations})
    if violations:
        sys.exit(1)


def _verify_archive(services: ServiceStubs, file: Path) -> list[str]:
    from services.metering.months.archive import ArchiveWrong, read_archive

    try:
        month, digest = read_archive(file)
    except ArchiveWrong as error:
        return [str(error)]
    closings = call_service(services.credits.ListClosings, ListClosingsRequest()).closings
    if month is None:
        return [f"{file.name} has no entries"]
    closing = next((each for each in closings if each.month == str(month)), None)
    if closing is None:
        return [f"the month {month} is not closed"]
    if (digest.entries, digest.hexdigest()) != (closing.entries, closing.entries_hash):
        return [f"{file.name} is not what was closed in {month}"]
    return []
