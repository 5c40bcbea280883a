"""The live status: each process, the providers, and what needs a look. A script reads the figures again while the page
is visible."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple

from starlette.responses import JSONResponse, Response

from console.display.error_words import error_words
from console.display.language import _, ngettext
from console.display.model_health import FAILING, RECOVERING, UNKNOWN, while_closed
from console.display.words import clock, in_words, number, percent
from console.pages.operator.ledger import last_audit
from console.process_status import ProcessState, quantile, read_processes
from console.web.visit import Visit

CLOSED: Final = 0.0
OPEN: Final = 2.0
BREAKERS: Final = {1.0: RECOVERING, OPEN: FAILING}
FIRST_TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"  # noqa: S105
CERTIFICATE_WARNING: Final = timedelta(days=7)
# Beyond it an edge asks auth about every request.
LARGEST_REVOCATION_LAG_S: Final = 0.8
FULL_SHARE: Final = 0.9
REASONS_SHOWN: Final = 8
NO_LIMIT: Final = 1_000_000
# Statuses from this one on are failures of ours.
SERVER_FAILED: Final = "500"
MEBIBYTE: Final = 1024 * 1024
NONE: Final = "\N{EN DASH}"


class Figure(NamedTuple):
    """A text that changes while the page is open, and its kind: good, warn, bad, or none."""

    text: str
    kind: str = ""


class Finding(NamedTuple):
    """Something that needs a look, and the document that says what to do."""

    kind: str
    text: str
    runbook: str


@dataclass(frozen=True, slots=True)
class Status:
    # By the name under which the page shows them.
    figures: dict[str, Figure]
    findings: list[Finding]
    processes: list[ProcessState]
    # Provider and model of each row.
    models: list[tuple[str, str]]
    reasons: list[str]

    @property
    def consoles(self) -> list[ProcessState]:
        return [state for state in self.processes if state.kind == "console"]

    @property
    def shape(self) -> str:
        """The structure of the page. If it changes, the page is loaded again."""
        parts = [
            *(f"{state.name} {state.address}" for state in self.processes),
            *(" ".join(model) for model in self.models),
            *self.reasons,
            *(finding.text for finding in self.findings),
        ]
        return sha256("\n".join(parts).encode()).hexdigest()[:16]


async def show(visit: Visit) -> Response:
    shown = await _status(visit)
    return visit.render("operator_status.html", shown=shown, read_at=_read_at(visit), error_words=error_words)


async def figures(visit: Visit) -> Response:
    status = await _status(visit)
    return JSONResponse({"shape": status.shape, "figures": status.figures, "time": _read_at(visit)})


def _read_at(visit: Visit) -> str:
    return f"{clock(visit.now, seconds=True)} UTC"


async def _status(visit: Visit) -> Status:
    return build(await read_processes(visit.console.processes), visit.now)


def build(states: list[ProcessState], now: datetime) -> Status:
    """Builds what the page shows from what the processes tell."""
    edges = [state for state in states if state.kind == "edge"]
    models = _models(states)
    reasons = _reasons(edges)
    shown = {
        **_totals(states, edges, now),
        **{name: figure for state in states for name, figure in _process(state, now)},
        **{name: figure for model in models for name, figure in _model(states, model)},
        **{
            f"refusals {reason}": Figure(_count(_sum(edges, "legato_refusals_total", reason=reason)))
            for reason in reasons
        },
    }
    return Status(shown, list(_findings(states, models, now)), states, models, reasons)


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
        "running": Figure(_count(running), "warn" if is_full else ""),
        "running limit": Figure(
            _("No edge answers.") if limit is None else _("of %(limit)s at once", limit=_count(limit))
        ),
        "first token": Figure(_seconds(median)),
        "first token slowest": Figure(
            _("No chat yet.") if slowest is None else _("99 of 100 within %(duration)s", duration=_seconds(slowest))
        ),
        "ledger": ledger,
        "ledger since": Figure(since),
        "holds": Figure(_count(None if audit is None else audit.live_holds)),
        "holds overdue": Figure(_count(None if audit is None else audit.overdue_holds)),
        "settlements": Figure(_count(_sum(edges, "legato_settlements_pending"))),
        "revocation": Figure(_seconds(_most(edges, "auth_revocation_lag_seconds"))),
        "connections": Figure(_count(_sum(edges, "legato_connections"))),
        "refused": Figure(_count(_sum(edges, "legato_refusals_total"))),
        "chats": Figure(_count(_sum(edges, "legato_chats_total"))),
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
    yield f"{key} pages", Figure(_count(sum(sample.value for sample in pages)))
    yield f"{key} failed pages", Figure(_count(failed), "warn" if failed else "")
    usable = {sample.labels["peer"]: sample.value for sample in state.find("legato_console_replicas_usable")}
    reached = ", ".join(f"{service} {_count(count)}" for service, count in sorted(usable.items()))
    yield f"{key} replicas", Figure(reached or NONE, "" if all(usable.values()) else "bad")


def _load(state: ProcessState) -> str:
    """Says what a process is doing, in its own measure."""
    if state.kind == "edge":
        running, limit = state.total("legato_live_streams"), state.total("legato_streams_limit")
        return (
            NONE
            if running is None
            else _("Chats: %(running)s of %(limit)s", running=_count(running), limit=_count(limit))
        )
    if state.kind == "router":
        running = state.total("legato_upstream_running")
        return NONE if running is None else ngettext("%(num)s chat", "%(num)s chats", int(running))
    if state.kind == "metering":
        waiting = state.total("legato_operations_waiting")
        return NONE if waiting is None else _("%(count)s waiting", count=_count(waiting))
    if state.kind == "auth":
        watches = state.total("legato_watches")
        return NONE if watches is None else ngettext("One edge", "%(num)s edges", int(watches))
    return NONE


def _models(states: list[ProcessState]) -> list[tuple[str, str]]:
    found = (sample.labels for state in states for sample in state.find("legato_breaker_state"))
    return sorted({(labels["gen_ai_provider_name"], labels["gen_ai_request_model"]) for labels in found})


def _model(states: list[ProcessState], model: tuple[str, str]) -> Iterator[tuple[str, Figure]]:
    key = f"model {model[0]} {model[1]}"
    labels = _labels(model)
    running, limits = (_sum_of_most(states, f"legato_upstream_{name}", labels) for name in ("running", "limit"))
    attempts = _sum(states, "legato_upstream_calls_total", **labels) or 0.0
    failures = _sum(states, "legato_upstream_attempts_total", outcome="failed", **labels) or 0.0
    breaker = _worst_breaker(states, model)
    words, kind = while_closed(attempts, failures) if breaker == CLOSED else BREAKERS.get(breaker, UNKNOWN)
    yield f"{key} state", Figure(_(words), kind)
    yield (
        f"{key} running",
        Figure(
            _("%(running)s of %(limit)s", running=_count(running), limit=_count(limits)) if limits else _count(running),
            "warn" if limits and running >= FULL_SHARE * limits else "",
        ),
    )
    share = percent(failures / attempts, 1) if attempts else NONE
    yield f"{key} attempts", Figure(_count(attempts))
    yield f"{key} failures", Figure(f"{_count(failures)} ({share})" if attempts else NONE)


def _labels(model: tuple[str, str]) -> dict[str, str]:
    return {"gen_ai_provider_name": model[0], "gen_ai_request_model": model[1]}


def _sum_of_most(states: list[ProcessState], name: str, labels: dict[str, str]) -> float:
    """Adds up the largest value of each process; a million stands for no limit."""
    most = (max((sample.value for sample in state.find(name, **labels)), default=0.0) for state in states)
    return sum(value for value in most if value < NO_LIMIT)


def _worst_breaker(states: list[ProcessState], model: tuple[str, str]) -> float:
    found = (sample.value for state in states for sample in state.find("legato_breaker_state", **_labels(model)))
    return max(found, default=-1.0)


def _reasons(edges: list[ProcessState]) -> list[str]:
    """Returns the most frequent reasons of refusals."""
    counts = Counter[str]()
    for sample in (sample for edge in edges for sample in edge.find("legato_refusals_total")):
        counts[sample.labels["reason"]] += int(sample.value)
    return sorted(reason for reason, count in counts.most_common(REASONS_SHOWN) if count)


def _findings(states: list[ProcessState], models: list[tuple[str, str]], now: datetime) -> Iterator[Finding]:
    for state in states:
        yield from _findings_of(state, now)
    versions = sorted({state.version for state in states if state.version})
    if len(versions) > 1:
        text = _("Processes have different versions: %(versions)s.", versions=", ".join(versions))
        yield Finding("warn", text, "scale-out.md")
    for provider, model in models:
        if _worst_breaker(states, (provider, model)) == OPEN:
            text = _("%(model)s of %(provider)s fails, and is asked last.", model=model, provider=provider)
            yield Finding("bad", text, "provider-down.md")
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


def _count(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else number(value)


def _seconds(value: float | None) -> str:
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return _("over 10 s")
    return f"{number(1000 * value)} ms" if value < 1 else f"{number(value, 1)} s"
