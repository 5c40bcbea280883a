"""Alerts where one Prometheus has several installations: what happens in one is told of that one alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.deploy.promtool import judge, rules, world

pytestmark = pytest.mark.long

# Minutes: longer than alerts wait that wait for hours.
LENGTH = 110
AT = "100m"
MODEL = 'gen_ai_provider_name="acme",gen_ai_request_model="model"'
PROVIDER = 'gen_ai_provider_name="acme"'
FIRST, SECOND, THIRD = (
    {"cluster": "one", "namespace": "legato"},
    {"cluster": "one", "namespace": "other"},
    {"cluster": "two", "namespace": "legato"},
)
Figures = Mapping[str, str]


class Case(NamedTuple):
    # In the place of {it}, the name of the installation; what grows does so by a minute.
    wrong: Figures
    well: Figures
    # `for`, of alerts that wait longer than all others.
    at: str = AT
    length: int = LENGTH


def gauge(series: str, wrong: str, well: str) -> Case:
    return Case({series: wrong}, {series: well})


def counter(series: str) -> Case:
    return gauge(series, "0+5", "0")


def histogram(name: str) -> Case:
    """Observations that all took up to a second, or up to 50 ms."""
    short, long, all_ = (f'{name}_bucket{{instance="1",le="{le}"}}' for le in ("0.05", "1", "+Inf"))
    return Case({short: "0", long: "0+10", all_: "0+10"}, {short: "0+10", long: "0+10", all_: "0+10"})


def errors(reason: str) -> Case:
    refused, served = f'legato_refusals_total{{reason="{reason}"}}', 'legato_chats_total{outcome="complete"}'
    return Case({refused: "0+10", served: "0"}, {refused: "0+1", served: "0+100000"})


SCRAPED = {"legato_ready": "1", "legato_keys_readable": "1", "legato_routes_info": "1", "legato_price_version": "1"}
AUDIT, INTERVAL = "legato_audit_last_run_timestamp_seconds", "legato_audit_interval_seconds"
FAILED, DELIVERED = (
    f'legato_notice_deliveries_total{{channel="mail",outcome="{outcome}"}}' for outcome in ("failed", "delivered")
)
UNTIL = f"legato_provider_promise_until_timestamp_seconds{{{PROVIDER}}}"
YEAR_S = str(365 * 86400)

CASES = {
    "ProcessDown": gauge('up{job="auth",instance="1"}', "0", "1"),
    "EdgesGone": Case({"legato_keys_readable": "1"}, SCRAPED),
    "NotScraped": Case({**SCRAPED, "legato_price_version": "_"}, SCRAPED),
    "MeteringUnreachable": gauge('legato_replicas_usable{peer="metering",instance="1"}', "0", "2"),
    "AuthUnreachable": gauge('legato_replicas_usable{peer="auth",instance="1"}', "0", "2"),
    "RouterUnreachable": gauge('legato_replicas_usable{peer="router",instance="1"}', "0", "2"),
    "RequestsWaiting": gauge('legato_requests_waiting{instance="1"}', "3", "0"),
    "PaymentEventsFail": counter('legato_payment_events_total{outcome="failed",instance="1"}'),
    "KeysUnreadable": gauge('legato_keys_readable{instance="1"}', "0", "1"),
    "RevocationLag": gauge('auth_revocation_lag_seconds{instance="1"}', "2", "0"),
    "AuditCopyLag": gauge('legato_audit_copy_lag_seconds{instance="1"}', "90", "0"),
    "LimitsNotShared": gauge('legato_limits_shared{instance="1"}', "0", "1"),
    "CertificateExpiring": gauge(
        'legato_certificate_expiry_timestamp_seconds{job="edge",instance="1"}', "86400", YEAR_S
    ),
    "LedgerViolations": gauge("legato_audit_violations", "2", "0"),
    "SettlementUnmatched": counter('legato_settlements_unmatched_total{instance="1"}'),
    "PriceFileInvalid": gauge("legato_price_file_valid", "0", "1"),
    "NoticesNotMailed": Case({FAILED: "0+1"}, {FAILED: "0+1", DELIVERED: "0+1"}),
    "AuditOverdue": Case({AUDIT: "0", INTERVAL: "300"}, {AUDIT: "0+60", INTERVAL: "7200"}),
    "MonthNotClosed": gauge("legato_months_to_close", "1", "0")._replace(at="26h", length=1600),
    "LedgerPartitionsMissing": gauge("legato_ledger_months_ahead", "1", "3"),
    "SettlementsPending": gauge('legato_settlements_pending{instance="1"}', "30", "0"),
    "JournalFull": Case(
        {'legato_journal_depth{instance="1"}': "90", 'legato_journal_slots{instance="1"}': "100"},
        {'legato_journal_depth{instance="1"}': "90", 'legato_journal_slots{instance="1"}': "10000"},
    ),
    "HoldsSwept": counter('legato_holds_swept_total{instance="1"}'),
    "HoldsOverdue": gauge("legato_holds_overdue", "30", "0"),
    "AccountsLocked": gauge('legato_accounts_locked{instance="1"}', "1", "0"),
    "SlowCommits": histogram("legato_batch_write_seconds"),
    "ModelFailing": gauge(f"legato_breaker_state{{{MODEL}}}", "2", "0"),
    "ImplausibleUsage": counter(f'legato_upstream_violations_total{{{MODEL},violation="prompt_tokens"}}'),
    "CanaryRolledBack": gauge(f'legato_canary_state{{class="forte",{MODEL}}}', "1", "0"),
    "RoutersDiffer": Case(
        {'legato_routes_info{instance="1",version="old"}': "1", 'legato_routes_info{instance="2",version="new"}': "1"},
        {
            'legato_routes_info{instance="1",version="of {it}"}': "1",
            'legato_routes_info{instance="2",version="of {it}"}': "1",
        },
    ),
    "RoutesNotInUse": Case(
        {
            'legato_routes_info{instance="1",version="old"}': "1",
            'legato_routes_file_info{instance="1",version="new"}': "1",
        },
        {
            'legato_routes_info{instance="1",version="of {it}"}': "1",
            'legato_routes_file_info{instance="1",version="of {it}"}': "1",
        },
    ),
    "PriceFilesDiffer": Case(
        {
            'legato_price_file_info{instance="1",version="old"}': "1",
            'legato_price_file_info{instance="2",version="new"}': "1",
        },
        {
            'legato_price_file_info{instance="1",version="of {it}"}': "1",
            'legato_price_file_info{instance="2",version="of {it}"}': "1",
        },
    ),
    "ProviderKeyUnusable": gauge(f"legato_provider_key_usable{{{PROVIDER}}}", "0", "1"),
    "ProviderPromiseLapses": gauge(UNTIL, str(10 * 86400), YEAR_S),
    "ProviderPromiseLapsed": gauge(UNTIL, "60", YEAR_S),
    "ProviderInOtherRegion": gauge(f"legato_provider_other_region{{{PROVIDER}}}", "1", "0"),
    "ChatErrors": errors("UPSTREAM_FAILED"),
    "Saturated": errors("SATURATED"),
    "EventLoopLag": histogram("legato_loop_lag_seconds"),
    "SpansDropped": counter('legato_spans_total{outcome="dropped",job="edge"}'),
}


def of_installation(figures: Figures, labels: Mapping[str, str], length: int) -> dict[str, str]:
    """Gives each series the labels of an installation."""
    named, told = ",".join(f'{name}="{value}"' for name, value in labels.items()), {}
    for series, values in figures.items():
        name, _, rest = series.replace("{it}", "_".join(labels.values())).partition("{")
        told[f"{name}{{{named}{',' + rest if rest else '}'}"] = (
            f"{values}x{length}" if "+" in values else (f"_x{length}" if values == "_" else f"{values}+0x{length}")
        )
    return told


def fires_in(alert: str, at: str, *installations: Mapping[str, str]) -> dict[str, object]:
    """Expects that the alert fires in these installations, and in no others."""
    samples = [
        {"labels": "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}", "value": 1}
        for labels in installations
    ]
    fires = f'group by (cluster, namespace) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {"promql_expr_test": [{"expr": fires, "eval_time": at, "exp_samples": samples}]}


def test_every_alert_is_tried() -> None:
    assert sorted(CASES) == sorted(rule["alert"] for rule in rules())


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_is_of_the_installation_that_it_is_about(tmp_path: Path, alert: str) -> None:
    case = CASES[alert]

    def told(figures: Figures, *installations: Mapping[str, str]) -> dict[str, str]:
        return {k: v for labels in installations for k, v in of_installation(figures, labels, case.length).items()}

    worlds = [
        world(told(case.well, FIRST, SECOND, THIRD), **fires_in(alert, case.at)),
        world(told(case.well, SECOND, THIRD) | told(case.wrong, FIRST), **fires_in(alert, case.at, FIRST)),
        world(told(case.wrong, FIRST, SECOND, THIRD), **fires_in(alert, case.at, FIRST, SECOND, THIRD)),
    ]
    assert judge(tmp_path, worlds, alert)


def test_edges_that_vanish_are_told(tmp_path: Path) -> None:
    """Those of one installation of two, together with all else of it; and those of the only one that there is."""
    vanished, there = (f"1+0x{minutes}" for minutes in (30, LENGTH))
    one, other = (f'legato_ready{{cluster="one",namespace="{name}"}}' for name in ("legato", "other"))
    worlds = [
        world({one: there, other: there}, **fires_in("EdgesGone", AT)),
        world({one: vanished, other: there}, **fires_in("EdgesGone", AT, FIRST)),
        world({one: vanished, other: vanished}, **fires_in("EdgesGone", AT, FIRST, SECOND)),
        # Prometheus knows of none, and so of no installation.
        world({'up{job="another"}': there}, **fires_in("EdgesGone", AT, {})),
    ]
    assert judge(tmp_path, worlds, "EdgesGone")
