"""The ledger's audit: what the last one found, and another one at once."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.responses import Response

from console.process_status import ProcessState, read_processes
from console.services import if_available
from console.web.visit import Visit
from legato_protos.auth.v1 import users_pb2
from legato_protos.metering.v1 import metering_pb2

# An audit reads every row of the ledger. A browser that waits longer than this is told that it goes on.
AUDIT_TIMEOUT_S: Final = 120.0
VIOLATIONS_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class LastAudit:
    """The state of the audit that metering makes by itself."""

    ended: datetime
    # None: the first one has not ended yet.
    violations: int | None
    interval_s: float
    live_holds: int
    overdue_holds: int

    def is_overdue(self, now: datetime) -> bool:
        return now - self.ended > timedelta(seconds=3 * self.interval_s)


async def show(visit: Visit, found: metering_pb2.AuditResponse | None = None, took_s: float | None = None) -> Response:
    """Shows the last audit; and of one that was asked for what it found, or, if that is None, that it goes on."""
    metering = [each for each in visit.console.processes if each.name.startswith("metering")]
    return visit.render(
        "operator_ledger.html",
        503 if took_s is not None and found is None else 200,
        last=last_audit(await read_processes(metering)),
        is_known=bool(metering),
        found=found,
        took_s=took_s,
        violations_shown=VIOLATIONS_SHOWN,
    )


async def run(visit: Visit) -> Response:
    await visit.record_operator_action(users_pb2.OPERATOR_ACTION_AUDIT_LEDGER)
    audit = visit.metering.credit_admin.Audit(metering_pb2.AuditRequest(), timeout=AUDIT_TIMEOUT_S)
    return await show(visit, await if_available(audit), visit.elapsed_s())


def last_audit(states: list[ProcessState]) -> LastAudit | None:
    """Returns the newest audit that a metering process tells of; one of them audits, the others do not."""
    audits = []
    for state in states:
        ended_s, interval_s = (
            state.total(f"legato_audit_{name}_seconds") for name in ("last_run_timestamp", "interval")
        )
        violations = state.total("legato_audit_violations")
        if ended_s is None or math.isnan(ended_s) or not interval_s or violations is None:
            continue
        audits.append(
            LastAudit(
                ended=datetime.fromtimestamp(ended_s, UTC),
                violations=None if math.isnan(violations) else int(violations),
                interval_s=interval_s,
                live_holds=int(state.total("legato_holds_live") or 0),
                overdue_holds=int(state.total("legato_holds_overdue") or 0),
            )
        )
    return max(audits, key=lambda audit: audit.ended, default=None)
