"""Dashboard and alerts go by figures that the processes really tell, and by labels that these really have."""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import openai
import pytest
from prometheus_client import generate_latest
from ruamel.yaml import YAML

from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.rpc.certificates import show_certificate
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.credit.price_watch import PriceWatch
from services.metering.credit.prices import Prices
from services.metering.limits.rates import LocalLimiter
from services.metering.limits.valkey import ValkeyLimiter
from services.metering.metrics import show_shared_limits
from services.payments.metrics import show_payments
from services.router.metrics import show_keys, show_outcomes, show_providers, show_route_file, show_shares
from services.router.models.circuit_breaker import CircuitBreaker
from services.router.models.recent_health import RecentHealth
from services.router.models.saturation import ModelSaturation
from services.router.models.states import ClassModels, ModelState, ModelStates
from services.router.providers.base import Provider, ProviderRoute
from services.router.routes.class_route import CanaryRoute, ClassRoute
from services.router.routes.key_watch import KeyWatch
from services.router.routes.routes import Routes
from services.router.routes.target import Target
from services.router.routes.watch import RouteWatch
from services.router.trials.canary import ROLE, Canaries
from services.router.trials.outcomes import CallOutcome, OutcomesByClass
from tests.e2e.chats import QUESTION
from tests.e2e.operations import PROCESSES, families_in, metrics_of
from tests.e2e.raw_http import post_chat
from tests.support.certificates import Authority
from tests.support.fakes import FakeClock
from tests.support.service import Service
from tests.support.upstreams.openai import Upstream
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "observability"
PRICES = ROOT / "prices.toml"
COMPONENTS = ROOT / "deploy" / "kubernetes" / "components"

# What Prometheus knows by itself. On Kubernetes it gives each line more labels, in place of ours of the same name.
OWN_METRICS = {"up": set[str]()}
OWN_LABELS = {"job", "instance", "namespace", "cluster"}
OWN_LABELS_ON_KUBERNETES = {"container", "endpoint", "node", "pod", "prometheus", "service"}

_MATCHERS = re.compile(r"\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_RANGES = re.compile(r"\[[^\]]*\]")
_STRINGS = re.compile(r'"[^"]*"')
_OPERATORS = {"and", "or", "unless"}
# Neither a function nor a part of a number.
_NAMES = re.compile(r"(?<![\w.])[a-z_][a-z0-9_]*\b(?!\s*\()")
_TEMPLATE_LABELS = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")
_REASONS = re.compile(r'reason=~?"([^"]*)"')


@dataclass(frozen=True)
class Query:
    """One expression, and what is said about its results."""

    where: str
    expression: str
    text: str

    @property
    def metrics(self) -> set[str]:
        bare = _STRINGS.sub("", _GROUPING.sub(" ", _RANGES.sub("", _MATCHERS.sub("", self.expression))))
        return set(_NAMES.findall(bare)) - _OPERATORS

    @property
    def labels(self) -> set[str]:
        matched = [
            name for matchers in _MATCHERS.findall(self.expression) for name in re.findall(r"(\w+)\s*[=!]", matchers)
        ]
        grouped = [name.strip() for names in _GROUPING.findall(self.expression) for name in names.split(",")]
        return {*matched, *grouped, *_TEMPLATE_LABELS.findall(self.text)} - OWN_LABELS - {""}


def rules() -> list[dict[str, Any]]:
    groups = YAML(typ="safe").load(FOLDER / "alerts.yml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "grafana" / "legato.json").read_text())
    return found


def queries() -> Iterator[Query]:
    for rule in rules():
        yield Query(rule["alert"], rule["expr"], rule["annotations"]["summary"])
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield Query(panel["title"], target["expr"], target["legendFormat"])
    yield from autoscalers()


def autoscalers() -> Iterator[Query]:
    for file in [*(COMPONENTS / "autoscaling").glob("*.yaml"), COMPONENTS / "keda" / "scaled-objects.yaml"]:
        for resource in YAML(typ="safe").load_all(file):
            where = f"{resource['kind']} {file.name}"
            for metric in resource.get("spec", {}).get("metrics", []):
                if metric["type"] == "Pods":
                    yield Query(where, metric["pods"]["metric"]["name"], "")
            for trigger in resource.get("spec", {}).get("triggers", []):
                yield Query(where, trigger["metadata"]["query"], "")


@pytest.fixture(scope="module")
def told(service: Service, shared_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric, by its name, after a chat that was served and one that was refused."""
    account = service.new_account()
    with openai.OpenAI(base_url=service.base_url, api_key=service.new_key(account)) as client:
        client.chat.completions.create(model="mezzo", messages=QUESTION)
    post_chat(service, "sk-legato-unknown", {"model": "mezzo", "messages": QUESTION})
    service.settled_balance_nanos(account)
    # The first audit comes some seconds after the start.
    wait_until(lambda: not math.isnan(metrics_of(service, "metering")["legato_audit_violations"].samples[0].value))
    families = [family for process in PROCESSES for family in metrics_of(service, process).values()]
    families += _told_where_configured(tmp_path_factory.mktemp("certificates"))
    labels: dict[str, set[str]] = dict(OWN_METRICS)
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def _told_where_configured(folder: Path) -> list[Any]:
    """Metrics of processes with certificates, Valkey limits, card payments, a canary, a model with a limit, providers
    that are not our own, and files that replicas take over together."""
    registry, log = Registry(), Log("test")
    show_certificate(registry, Authority(folder).certificates("edge", log))
    show_payments({"failed": 1}, registry)
    key_file = folder / "acme"
    provider = ProviderRoute("acme", "openai", until=date(2027, 6, 30), region="canadaeast", api_key_file=key_file)
    routed = SimpleNamespace(
        routes=Routes({"acme": provider}, {}), other_regions={}, credentials_failure=lambda provider: ""
    )
    show_providers(cast(ModelStates, routed), registry)
    show_keys(cast(ModelStates, routed), KeyWatch(cast(ModelStates, routed), log), registry)
    target = Target("acme", "new", 1000, 100)
    clock = FakeClock()
    new = ModelState(target, cast(Provider, None), ModelSaturation(clock), CircuitBreaker(clock), RecentHealth(clock))
    route = ClassRoute(canary=CanaryRoute(target, 5))
    canaries, outcomes = Canaries(log), OutcomesByClass()
    canaries.follow({"mezzo": ClassModels(route, (), (), of_route=(new,))})
    canaries.show(registry)
    outcomes.follow({"mezzo": ClassModels(route, (), (), of_route=(new, new))})
    outcomes.by_class["mezzo"].record(ROLE, target, CallOutcome())
    show_outcomes(outcomes, registry)
    limited = SimpleNamespace(target=target, saturation=SimpleNamespace(share=SimpleNamespace(places=8)))
    models = SimpleNamespace(of_route=[limited])
    show_shares(cast(ModelStates, SimpleNamespace(by_class={"mezzo": models})), registry)
    show_route_file(cast(RouteWatch, SimpleNamespace(file_version="0a1b")), registry)
    PriceWatch(PRICES, cast(Database, None), Prices(1, {}), log, registry, shares=True)
    show_shared_limits(ValkeyLimiter("redis://127.0.0.1:1", LocalLimiter(FakeClock()), log), registry)
    return families_in(generate_latest(registry).decode())


def test_every_metric_and_label_that_is_looked_at_is_told(told: dict[str, set[str]]) -> None:
    asked = list(queries())
    unknown = [(query.where, name) for query in asked for name in query.metrics - told.keys()]
    assert unknown == []
    without = [
        (query.where, label)
        for query in asked
        for label in query.labels
        if not any(label in told[name] for name in query.metrics)
    ]
    assert without == []


def test_everything_of_ours_that_is_told_is_looked_at(told: dict[str, set[str]]) -> None:
    looked_at = {name for query in queries() for name in query.metrics}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in looked_at}
    ours = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for name in told
        if name.startswith(("legato_", "gen_ai_", "auth_")) and not name.endswith("_created")
    }
    assert ours - families == set()


def test_no_label_of_ours_is_taken_by_prometheus(told: dict[str, set[str]]) -> None:
    taken = OWN_LABELS | OWN_LABELS_ON_KUBERNETES
    assert {name: labels & taken for name, labels in told.items() if labels & taken} == {}


def test_reasons_that_alerts_go_by_exist() -> None:
    named = {
        reason for query in queries() for found in _REASONS.findall(query.expression) for reason in found.split("|")
    }
    assert named
    assert named <= set(Reason)


def test_every_alert_leads_to_a_page_that_knows_it() -> None:
    for rule in rules():
        page = ROOT / rule["annotations"]["runbook"]
        assert rule["alert"] in page.read_text(), f"{page.name} does not know {rule['alert']}"


def test_every_panel_shows_the_installation_that_is_chosen() -> None:
    of_one = 'cluster="$cluster",namespace="$namespace"'
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            named = re.findall(
                r"(?:legato|gen_ai|auth|process)_\w+(?=[{\[)]| unless)", _GROUPING.sub("", target["expr"])
            )
            assert target["expr"].count(of_one) == len(named) > 0, target["expr"]
            assert target.get("datasource", panel["datasource"])["uid"] == "${datasource}"
    variables = {variable["name"]: variable for variable in dashboard()["templating"]["list"]}
    assert variables.keys() == {"datasource", "cluster", "namespace", "job"}
    # All of them at once would be sums and largest values of several installations.
    assert not any("includeAll" in variables[name] for name in ("cluster", "namespace"))


def test_queries_are_taken_apart_as_they_should_be() -> None:
    query = Query(
        "",
        'sum by (le, step) (rate(a_bucket{job=~"x|y", b!="c"}[5m])) / 1e6 > time() - (max(d_total) or vector(0))',
        "{{step}}",
    )
    assert query.metrics == {"a_bucket", "d_total"}
    assert query.labels == {"le", "step", "b"}
