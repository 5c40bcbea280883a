"""Alerts: what they say, and when, as Prometheus itself judges made-up figures."""

from pathlib import Path

import pytest

from tests.deploy.promtool import RULES, judge, promtool, rule_of, world

pytestmark = pytest.mark.long


def agrees(
    folder: Path, figures: dict[str, str], alert: str, at: str, summary: str, labels: dict[str, str] | None = None
) -> bool:
    """Tells if the alert fires at that time with that summary, and these labels beside its own; or not at all,
    if there is no summary."""
    rule = rule_of(alert)
    expected = {
        "exp_labels": {**rule["labels"], **(labels or {})},
        "exp_annotations": {"summary": summary, "runbook": rule["annotations"]["runbook"]},
    }
    told = {"eval_time": at, "alertname": alert, "exp_alerts": [expected] if summary else []}
    return judge(folder, [world(figures, alert_rule_test=[told])], alert)


@pytest.mark.parametrize("let_in", ["0+10x30", "0+0x30"], ids=["by a model", "at the door"])
@pytest.mark.parametrize(
    ("served", "summary"),
    [
        ("0+30x30", "25% of chats are refused for lack of capacity"),
        ("0+0x30", "100% of chats are refused for lack of capacity"),
        ("0+10000x30", ""),
    ],
)
def test_saturated_tells_the_part_of_all_chats_that_is_refused(
    tmp_path: Path, let_in: str, served: str, summary: str
) -> None:
    """Edges refuse chats, and so does the router, which sees only those that were let in."""
    figures = {
        'legato_refusals_total{reason="SATURATED"}': "0+10x30",
        'legato_chats_total{class="forte",outcome="complete"}': served,
        'legato_chats_total{class="forte",outcome="refused"}': let_in,
    }
    assert agrees(tmp_path, figures, "Saturated", "20m", summary)


def test_chats_that_all_fail_are_told_though_none_was_ever_let_in(tmp_path: Path) -> None:
    figures = {'legato_refusals_total{reason="UNAVAILABLE"}': "0+10x30"}
    assert agrees(tmp_path, figures, "ChatErrors", "20m", "100% of chats end in a server error")


@pytest.mark.parametrize(
    ("interval_s", "at", "summary"),
    [
        (300, "1h", ""),
        (300, "2h", "The last completed audit of the ledger was 2h 0m 0s ago"),
        (7200, "2h", ""),
        (7200, "4h", "The last completed audit of the ledger was 4h 0m 0s ago"),
    ],
)
def test_an_audit_is_overdue_an_hour_after_its_time(tmp_path: Path, interval_s: int, at: str, summary: str) -> None:
    """Here the world and metering began at once, and no audit has ended yet."""
    figures = {
        "legato_audit_last_run_timestamp_seconds": "0+0x300",
        "legato_audit_interval_seconds": f"{interval_s}+0x300",
    }
    assert agrees(tmp_path, figures, "AuditOverdue", at, summary)


@pytest.mark.parametrize(
    ("delivered", "summary"), [("0+0x90", "The mail server takes no notices to owners"), ("0+1x90", "")]
)
def test_mail_that_never_succeeds_is_told(tmp_path: Path, delivered: str, summary: str) -> None:
    figures = {
        'legato_notice_deliveries_total{channel="mail",outcome="failed"}': "0+1x90",
        'legato_notice_deliveries_total{channel="mail",outcome="delivered"}': delivered,
        'legato_notice_deliveries_total{channel="webhook",outcome="delivered"}': "0+1x90",
    }
    assert agrees(tmp_path, figures, "NoticesNotMailed", "80m", summary)


@pytest.mark.parametrize(
    ("overdue", "summary"),
    [
        ("3+0x60", ""),
        # Found by one audit, and swept before the next.
        ("300+0x5 0+0x60", ""),
        (
            "300+0x60",
            "300 expired holds have not been swept: their credit cannot be used",
        ),
    ],
)
def test_holds_are_overdue_when_one_audit_after_the_other_finds_them(
    tmp_path: Path, overdue: str, summary: str
) -> None:
    assert agrees(tmp_path, {"legato_holds_overdue": overdue}, "HoldsOverdue", "30m", summary)


@pytest.mark.parametrize(
    ("counted", "summary"),
    [
        ("0+0x60", ""),
        ("0+1x60", "model-1 at acme returned an implausible response (prompt_tokens)"),
    ],
)
def test_provider_whose_counts_cannot_be_is_told(tmp_path: Path, counted: str, summary: str) -> None:
    labels = {
        "gen_ai_provider_name": "acme",
        "gen_ai_request_model": "model-1",
        "violation": "prompt_tokens",
    }
    series = ",".join(f'{name}="{value}"' for name, value in labels.items())
    figures = {f"legato_upstream_violations_total{{{series}}}": counted}
    assert agrees(tmp_path, figures, "ImplausibleUsage", "30m", summary, labels)


@pytest.mark.parametrize(
    ("at", "alert", "summary"),
    [
        ("9m", "ProviderPromiseLapses", ""),
        ("11m", "ProviderPromiseLapses", "acme has promised to retain no data for 29d 23h 59m 0s more"),
        ("11m", "ProviderPromiseLapsed", ""),
    ],
)
def test_promise_of_a_provider_is_told_thirty_days_before_it_lapses(
    tmp_path: Path, at: str, alert: str, summary: str
) -> None:
    """The world begins 30 days and ten minutes before the promise lapses."""
    provider = {"gen_ai_provider_name": "acme"}
    series = 'legato_provider_promise_until_timestamp_seconds{gen_ai_provider_name="acme"}'
    assert agrees(tmp_path, {series: f"{30 * 86400 + 600}+0x30"}, alert, at, summary, provider)


def test_promise_that_has_lapsed_is_told_to_those_on_call(tmp_path: Path) -> None:
    series = 'legato_provider_promise_until_timestamp_seconds{gen_ai_provider_name="acme"}'
    summary = "The promise of acme to retain no data has lapsed: no router can be started or reloaded with it"
    provider = {"gen_ai_provider_name": "acme"}
    assert agrees(tmp_path, {series: "600+0x30"}, "ProviderPromiseLapsed", "11m", summary, provider)


def test_provider_in_another_region_is_told(tmp_path: Path) -> None:
    series = 'legato_provider_other_region{gen_ai_provider_name="acme"}'
    summary = "The certificate of acme names another region than the routes"
    provider = {"gen_ai_provider_name": "acme"}
    assert agrees(tmp_path, {series: "0+0x5 1+0x30"}, "ProviderInOtherRegion", "10m", summary, provider)


def test_file_that_is_not_taken_over_is_told_after_a_while(tmp_path: Path) -> None:
    figures = {
        'legato_routes_info{version="old",instance="one"}': "1+0x60",
        'legato_routes_info{version="old",instance="two"}': "1+0x60",
        'legato_routes_file_info{version="old",instance="one"}': "1+0x5 _x60",
        'legato_routes_file_info{version="new",instance="one"}': "_x5 1+0x60",
        'legato_routes_file_info{version="old",instance="two"}': "1+0x60",
        'legato_price_file_info{version="old",instance="one"}': "1+0x60",
        'legato_price_file_info{version="new",instance="two"}': "_x5 1+0x60",
    }
    summary = "1 routers do not use what their routes file says"
    assert agrees(tmp_path, figures, "RoutesNotInUse", "15m", "", {})
    assert agrees(tmp_path, figures, "RoutesNotInUse", "40m", summary, {})
    summary = "Replicas of metering have 2 versions of the price file: none is taken over"
    assert agrees(tmp_path, figures, "PriceFilesDiffer", "40m", summary, {})


def test_file_without_an_api_key_is_told(tmp_path: Path) -> None:
    series = 'legato_provider_key_usable{gen_ai_provider_name="acme"}'
    summary = "The file of the API key of acme has no key: the last one stays in use"
    provider = {"gen_ai_provider_name": "acme"}
    assert agrees(tmp_path, {series: "1+0x5 0+0x30"}, "ProviderKeyUnusable", "15m", summary, provider)


def test_canary_that_was_rolled_back_on_one_router_is_told(tmp_path: Path) -> None:
    labels = {"class": "forte", "gen_ai_provider_name": "acme", "gen_ai_request_model": "new"}
    named = ",".join(f'{name}="{value}"' for name, value in labels.items())
    figures = {
        f'legato_canary_state{{{named},instance="one"}}': "0+0x5 1+0x30",
        f'legato_canary_state{{{named},instance="two"}}': "0+0x30",
    }
    summary = "The canary of forte failed more than its other models: new at acme was rolled back"
    assert agrees(tmp_path, figures, "CanaryRolledBack", "4m", "", labels)
    assert agrees(tmp_path, figures, "CanaryRolledBack", "10m", summary, labels)


def test_prometheus_understands_its_files() -> None:
    checked = promtool("check", "config", str(RULES.with_name("prometheus.yml")))
    assert checked.returncode == 0, checked.stderr
