"""The status of processes, by what they tell of themselves: figures of each and of all, and what needs a look."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from console.display.language import _, ngettext
from console.display.words import in_words, number
from console.pages.operator.figures import FULL_SHARE, NONE, Figure, Finding, counted
from console.pages.operator.ledger import last_audit
from console.process_status import ProcessState, quantile

FIRST_TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"  # noqa: S105
CERTIFICATE_WARNING: Final = timedelta(days=7)
# Beyond it an edge asks auth about every request.
LARGEST_REVOCATION_LAG_S: Final = 0.8
REASONS_SHOWN: Final = 8
# Statuses from this one on are failures of ours.
SERVER_FAILED: Final = "500"
MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Status:
    # By the name under which the page shows them.
    figures: dict[str, Figure]
    findings: list[Finding]
    processes: list[ProcessState]
    reasons: list[str]

    @property
    def consoles(self) -> list[ProcessState]:
        return [state for state in self.processes if state.kind == "console"]


def build(states: list[ProcessState], now: datetime) -> Status:
    """Builds what is shown of the processes from what they tell."""
    edges = [state for state in states if state.kind == "edge"]
    reasons = _reasons(edges)
    shown = {
        **_totals(states, edges, now),
        **{name: figure for state in states for name, figure in _process(state, now)},
        **{
            f"refusals {reason}": Figure(counted(_sum(edges, "legato_refusals_total", reason=reason)))
            for reason in reasons
        },
    }
    return Status(shown, list(_findings(states, now)), states, reasons)


def _totals(states: list[ProcessState], edges: list[ProcessState], now: datetime) -> dict[str, Figure]:
    running, limit = _sum(edges, "legato_live_streams"), _sum(edges, "legato_streams_limit")
    median, slowest = quantile(edges, FIRST_TOKEN, 0.5), quantile(edges, FIRST_TOKEN, 0.99)
    audit = last_audit(states)
    is_full = running is not None and limit and running >= FULL_SHARE * limit
    if audit is None:
        ledger, since = Figure(_("Not known"), "warn"), _("No metering process tells of an audit.")
    elif audit.violations is None:
        ledger, since = Figure(_("Not audited yet"), "warn"), _("The first audit has not ended.")
    else:
        found = ngettext("One violation", "%(num)s violations", audit.violations)
        ledger = Figure(found, "bad") if audit.violations else Figure(_("Consistent"), "good")
        since = _("Audited %(duration)s ago", duration=in_words(now - audit.ended))
    return {
        "running": Figure(counted(running), "warn" if is_full else ""),
        "running limit": Figure(
            _("No edge answers.") if limit is None else _("of %(limit)s at once", limit=counted(limit))
        ),
        "first token": Figure(_seconds(median)),
        "first token slowest": Figure(
            _("No chat yet.") if slowest is None else _("99 of 100 within %(duration)s", duration=_seconds(slowest))
        ),
        "ledger": ledger,
        "ledger since": Figure(since),
        "holds": Figure(counted(None if audit is None else audit.live_holds)),
        "holds overdue": Figure(counted(None if audit is None else audit.overdue_holds)),
        "settlements": Figure(counted(_sum(edges, "legato_settlements_pending"))),
        "revocation": Figure(_seconds(_most(edges, "auth_revocation_lag_seconds"))),
        "connections": Figure(counted(_sum(edges, "legato_connections"))),
        "refused": Figure(counted(_sum(edges, "legato_refusals_total"))),
        "chats": Figure(counted(_sum(edges, "legato_chats_total"))),
    }


def _process(state: ProcessState, now: datetime) -> Iterator[tuple[str, Figure]]:
    key = f"{state.name} {state.address}"
    if not state.answers:
        # Red, not zero: nothing is known of it.
        yield f"{key} state", Figure(_("Does not answer"), "bad")
        names = ("version", "uptime", "load", "memory", "pages", "failed pages", "replicas")
        yield from ((f"{key} {name}", Figure(NONE)) for name in names)
        return
    yield f"{key} state", Figure(_("Not ready"), "warn") if state.missing else Figure(_("Ready"), "good")
    started_s = state.total("process_start_time_seconds")
    uptime = NONE if started_s is None else in_words(now - datetime.fromtimestamp(started_s, UTC))
    yield f"{key} uptime", Figure(uptime)
    yield f"{key} version", Figure(state.version or NONE)
    yield f"{key} load", Figure(_load(state))
    memory = state.total("process_resident_memory_bytes")
    yield f"{key} memory", Figure(NONE if memory is None else f"{number(memory / MEBIBYTE)} MiB")
    if state.kind == "console":
        yield from _console(state, key)


def _console(state: ProcessState, key: str) -> Iterator[tuple[str, Figure]]:
    """Yields what a console has shown, and how many processes of each service it can use."""
    pages = list(state.find("legato_console_pages_total"))
    failed = sum(sample.value for sample in pages if sample.labels["status"] >= SERVER_FAILED)
    yield f"{key} pages", Figure(counted(sum(sample.value for sample in pages)))
    yield f"{key} failed pages", Figure(counted(failed), "warn" if failed else "")
    usable = {sample.labels["peer"]: sample.value for sample in state.find("legato_console_replicas_usable")}
    reached = ", ".join(f"{service} {counted(count)}" for service, count in sorted(usable.items()))
    yield f"{key} replicas", Figure(reached or NONE, "" if all(usable.values()) else "bad")


def _load(state: ProcessState) -> str:
    """Says what a process is doing, in its own measure."""
    if state.kind == "edge":
        running, limit = state.total("legato_live_streams"), state.total("legato_streams_limit")
        return (
            NONE
            if running is None
            else _("Chats: %(running)s of %(limit)s", running=counted(running), limit=counted(limit))
        )
    if state.kind == "router":
        running = state.total("legato_upstream_running")
        return NONE if running is None else ngettext("%(num)s chat", "%(num)s chats", int(running))
    if state.kind == "metering":
        waiting = state.total("legato_operations_waiting")
        return NONE if waiting is None else _("%(count)s waiting", count=counted(waiting))
    if state.kind == "auth":
        watches = state.total("legato_watches")
        return NONE if watches is None else ngettext("One edge", "%(num)s edges", int(watches))
    return NONE


def _reasons(edges: list[ProcessState]) -> list[str]:
    """Returns the most frequent reasons of refusals."""
    counts = Counter[str]()
    for sample in (sample for edge in edges for sample in edge.find("legato_refusals_total")):
        counts[sample.labels["reason"]] += int(sample.value)
    return sorted(reason for reason, count in counts.most_common(REASONS_SHOWN) if count)


def _findings(states: list[ProcessState], now: datetime) -> Iterator[Finding]:
    for state in states:
        yield from _findings_of(state, now)
    versions = sorted({state.version for state in states if state.version})
    if len(versions) > 1:
        text = _("Processes have different versions: %(versions)s.", versions=", ".join(versions))
        yield Finding("warn", text, "scale-out.md")
    audit = last_audit(states)
    if audit is not None and audit.violations:
        yield Finding("bad", _("The ledger has violations: see the ledger audit."), "restore-the-database.md")
    if audit is not None and audit.is_overdue(now):
        yield Finding("warn", _("The ledger's audit is overdue."), "metering-down.md")


def _findings_of(state: ProcessState, now: datetime) -> Iterator[Finding]:
    if not state.answers:
        runbook = "metering-down.md" if state.kind == "metering" else "README.md"
        text = _("%(process)s does not answer at %(address)s.", process=state.name, address=state.address)
        yield Finding("bad", text, runbook)
    elif state.missing:
        text = _("%(process)s is not ready: %(missing)s.", process=state.name, missing=state.missing)
        yield Finding("warn", text, "README.md")
    expires_s = state.total("legato_certificate_expiry_timestamp_seconds")
    if expires_s is not None and math.isfinite(expires_s):
        left = datetime.fromtimestamp(expires_s, UTC) - now
        if left < timedelta(0):
            text = _("The certificate of %(process)s has expired.", process=state.name)
            yield Finding("bad", text, "rotate-certificates.md")
        elif left < CERTIFICATE_WARNING:
            text = _(
                "The certificate of %(process)s expires in %(duration)s.", process=state.name, duration=in_words(left)
            )
            yield Finding("warn", text, "rotate-certificates.md")
    lag_s = state.total("auth_revocation_lag_seconds")
    if lag_s is not None and lag_s > LARGEST_REVOCATION_LAG_S:
        text = _("%(process)s hears of revoked keys late, and asks auth about every request.", process=state.name)
        yield Finding("warn", text, "README.md")
    for sample in state.find("legato_console_replicas_usable"):
        if not sample.value:
            service = sample.labels["peer"]
            text = _("%(process)s reaches no process of %(service)s.", process=state.name, service=service)
            yield Finding("bad", text, "metering-down.md" if service == "metering" else "README.md")


def _sum(states: list[ProcessState], name: str, **labels: str) -> float | None:
    found = [value for state in states if (value := state.total(name, **labels)) is not None]
    return sum(found) if found else None


def _most(states: list[ProcessState], name: str) -> float | None:
    values = [value for state in states if (value := state.total(name)) is not None and not math.isnan(value)]
    return max(values, default=None)


def _seconds(value: float | None) -> str:
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return _("over 10 s")
    return f"{number(1000 * value)} ms" if value < 1 else f"{number(value, 1)} s"
