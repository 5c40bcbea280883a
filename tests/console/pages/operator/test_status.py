"""The figures of processes: what is told of processes that work, that are missing something, and that do not answer."""

from datetime import UTC, datetime

from prometheus_client.samples import Sample

from console.pages.operator.status import build
from console.process_status import Metrics, ProcessState
from tests.console.processes import METRICS

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def state(name: str, text: str = "", version: str = "0.1.0", missing: str = "") -> ProcessState:
    return ProcessState(name, f"{name}:9090", True, missing, version, Metrics(text))


def test_consoles_tell_their_pages_and_what_they_reach() -> None:
    cut_off = METRICS["console"]().replace('peer="metering"} 1.0', 'peer="metering"} 0.0')
    status = build([state("console", METRICS["console"]()), state("console-operators", cut_off)], NOW)
    figures = status.figures
    assert figures["console console:9090 pages"].text == "3,124"
    assert figures["console console:9090 failed pages"] == ("4", "warn")
    assert figures["console console:9090 replicas"] == ("auth 2, metering 1, router 2", "")
    assert figures["console-operators console-operators:9090 replicas"] == ("auth 2, metering 0, router 2", "bad")
    assert [each.text for each in status.findings] == ["console-operators reaches no process of metering."]
    assert [each.name for each in status.consoles] == ["console", "console-operators"]


def test_a_process_that_does_not_answer_is_red_and_not_zero() -> None:
    status = build([ProcessState("edge-1", "edge-1:9090"), state("edge-2", METRICS["edge"]())], NOW)
    assert status.figures["edge-1 edge-1:9090 state"] == ("Does not answer", "bad")
    assert status.figures["edge-1 edge-1:9090 load"].text == "\N{EN DASH}"
    assert status.figures["running"].text == "43"
    assert [finding.kind for finding in status.findings] == ["bad"]
    nothing = build([ProcessState("edge-1", "edge-1:9090")], NOW)
    assert nothing.figures["running"].text == "\N{EN DASH}"


def test_what_needs_a_look_is_named_with_its_runbook() -> None:
    soon = NOW.timestamp() + 3600
    metering = (
        f"legato_certificate_expiry_timestamp_seconds {soon}\n"
        "legato_audit_violations 2.0\nlegato_audit_interval_seconds 600.0\n"
        f"legato_audit_last_run_timestamp_seconds {NOW.timestamp() - 3600}\n"
    )
    states = [
        state("edge-1", "auth_revocation_lag_seconds 4.0", missing="auth"),
        state("router", METRICS["router"](), version="0.2.0"),
        state("metering", metering),
    ]
    found = {finding.text: finding.runbook for finding in build(states, NOW).findings}
    assert found == {
        "edge-1 is not ready: auth.": "README.md",
        "edge-1 hears of revoked keys late, and asks auth about every request.": "README.md",
        "The certificate of metering expires in 1 hour.": "rotate-certificates.md",
        "Processes have different versions: 0.1.0, 0.2.0.": "scale-out.md",
        "The ledger has violations: see the ledger audit.": "restore-the-database.md",
        "The ledger's audit is overdue.": "metering-down.md",
    }


def test_a_ledger_that_was_not_audited_yet_is_not_called_consistent() -> None:
    text = (
        "legato_audit_violations NaN\nlegato_audit_interval_seconds 600.0\n"
        f"legato_audit_last_run_timestamp_seconds {NOW.timestamp()}\n"
    )
    assert build([state("metering", text)], NOW).figures["ledger"].kind == "warn"
    assert build([], NOW).figures["ledger"].kind == "warn"


def test_the_audit_is_that_of_the_replica_that_audits() -> None:
    """The others tell that they do not."""
    idle = (
        "legato_audit_violations NaN\nlegato_audit_interval_seconds 600.0\n"
        "legato_audit_last_run_timestamp_seconds NaN\n"
    )
    audits = (
        "legato_audit_violations 0.0\nlegato_audit_interval_seconds 600.0\n"
        f"legato_audit_last_run_timestamp_seconds {NOW.timestamp()}\n"
    )
    for texts in ((idle, audits), (audits, idle)):
        states = [state(f"metering-{number}", text) for number, text in enumerate(texts)]
        assert build(states, NOW).figures["ledger"].kind == "good"
    assert build([state("metering", idle)], NOW).figures["ledger"].kind == "warn"


def test_metrics_are_read_as_they_are_written() -> None:
    text = '# HELP a_b Words.\n# TYPE a_b counter\na_b{c="d\\"e\\\\f",g="h i"} 2.5\nplain NaN\nbroken\n'
    metrics = Metrics(text)
    assert metrics.find("a_b") == [Sample("a_b", {"c": 'd"e\\f', "g": "h i"}, 2.5)]
    assert [sample.name for sample in metrics.find("plain")] == ["plain"]
    assert metrics.find("broken") == metrics.find("#") == metrics.find("missing") == []
