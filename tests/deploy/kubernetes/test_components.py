"""What each component adds, beyond what holds for all resources."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from ruamel.yaml import YAML

from cli.authority import SERVERS
from cli.backups.settings import BackupSettings
from cli.commands.service.backup import backup
from cli.commands.service.restore import restore
from edge.wire.body_reader import LARGEST_BODY_BYTES
from services.chassis.rpc.callers import Role, role_of
from services.chassis.settings import PREFIX
from services.router.grounding.settings import GroundingSettings
from tests.deploy.kubernetes.kustomize import (
    COMPONENTS,
    KUBERNETES,
    PRODUCTION,
    ROOT,
    Resource,
    read_yaml,
    render,
    render_with_all,
)
from tests.deploy.kubernetes.policies import (
    abroad,
    careless,
    containers,
    environment,
    name_of,
    not_restricted,
    template_of,
)
from tests.deploy.kubernetes.references import secrets_of
from tests.deploy.promtool import judge, world

pytestmark = pytest.mark.long

SCALED = ("edge", "metering", "router")
UNITS_S = {"s": 1, "m": 60, "h": 3600}


def by_kind(resources: list[Resource], kind: str) -> dict[str, Any]:
    return {resource["metadata"]["name"]: resource["spec"] for resource in resources if resource["kind"] == kind}


def environ_of(resources: list[Resource], name: str) -> dict[str, str]:
    [container] = [container for _, _, container in containers(resources) if container["name"] == name]
    return environment(container, resources)


def test_the_guide_describes_every_component() -> None:
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    assert [name for name in COMPONENTS if f"`{name}`" not in guide] == []


@pytest.mark.parametrize("render_it", [render, render_with_all], ids=["autoscaling", "keda"])
def test_an_autoscaler_has_the_number_of_replicas_to_itself(render_it: Callable[[Path], list[Resource]]) -> None:
    deployments = by_kind(render_it(PRODUCTION), "Deployment")
    assert sorted(name for name, spec in deployments.items() if "replicas" not in spec) == sorted(SCALED)


def test_the_adapter_adds_up_what_autoscalers_go_by_for_each_pod(tmp_path: Path) -> None:
    """As the adapter asks for the pods of an autoscaler, while another installation has pods of that name."""
    rules = YAML(typ="safe").load(ROOT / "deploy" / "observability" / "prometheus-adapter.yaml")["rules"]["custom"]
    metrics = [
        metric["pods"]["metric"]["name"]
        for scaler in by_kind(render(PRODUCTION), "HorizontalPodAutoscaler").values()
        for metric in scaler["metrics"]
        if metric["type"] == "Pods"
    ]
    by_metric = {rule["seriesQuery"].partition("{")[0]: rule for rule in rules}
    assert sorted(by_metric) == sorted(metrics)
    for metric, rule in by_metric.items():
        assert rule["resources"]["overrides"] == {name: {"resource": name} for name in ("namespace", "pod")}
        query = rule["metricsQuery"]
        for template, value in {
            "<<.Series>>": metric,
            "<<.LabelMatchers>>": 'namespace="legato",pod=~"a|b"',
            "<<.GroupBy>>": "pod",
        }.items():
            query = query.replace(template, value)
        figures = {
            f'{metric}{{namespace="{namespace}",pod="{pod}",gen_ai_request_model="{model}"}}': f"{value}x5"
            for namespace, pod, model, value in (
                ("legato", "a", "x", 30),
                ("legato", "a", "y", 12),
                ("legato", "b", "x", 7),
                ("other", "a", "x", 500),
            )
        }
        samples = [{"labels": '{pod="a"}', "value": 42}, {"labels": '{pod="b"}', "value": 7}]
        asked = {"expr": query, "eval_time": "3m", "exp_samples": samples}
        assert judge(tmp_path, [world(figures, promql_expr_test=[asked])])


def test_keda_scales_by_the_figures_of_the_autoscalers() -> None:
    scalers = by_kind(render(PRODUCTION), "HorizontalPodAutoscaler")
    scaled = by_kind(render_with_all(PRODUCTION), "ScaledObject")
    assert sorted(scalers) == sorted(scaled) == sorted(SCALED)
    for name, spec in scaled.items():
        scaler = scalers[name]
        [trigger], [metric] = spec["triggers"], scaler["metrics"]
        target = metric[metric["type"].lower()]["target"]["averageValue"]
        per_replica = float(target.removesuffix("m")) / (1000 if target.endswith("m") else 1)
        assert float(trigger["metadata"]["threshold"]) == per_replica
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (scaler["minReplicas"], scaler["maxReplicas"])
        behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert behavior == scaler["behavior"]
        if metric["type"] == "Pods":
            assert metric["pods"]["metric"]["name"] in trigger["metadata"]["query"]


def test_a_gateway_waits_as_long_as_an_answer_may_go_on() -> None:
    resources = render(PRODUCTION)
    routes = by_kind(resources, "HTTPRoute")
    [rule] = routes["edge"]["rules"]
    for timeout in rule["timeouts"].values():
        number, unit = re.fullmatch(r"(\d{1,5})(h|m|s)", timeout).groups()  # type: ignore[union-attr]
        assert int(number) * UNITS_S[unit] > int(environ_of(resources, "edge")["LEGATO_STREAM_LIFE_S"])
    addresses = environ_of(resources, "console")
    for name, setting in (("edge", "LEGATO_CONSOLE_API_URL"), ("console", "LEGATO_CONSOLE_URL")):
        assert routes[name]["hostnames"] == [addresses[setting].split("/")[2]]


def test_an_ingress_waits_as_long_and_neither_buffers_nor_refuses_what_the_service_takes() -> None:
    resources = render_with_all(PRODUCTION)
    ingresses = {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == "Ingress"}
    largest = {"edge": LARGEST_BODY_BYTES, "console": GroundingSettings().attachment_bytes}
    assert ingresses.keys() == largest.keys()
    for name, ingress in ingresses.items():
        given = {key.partition("/")[2]: value for key, value in ingress["metadata"]["annotations"].items()}
        assert given["proxy-buffering"] == given["proxy-request-buffering"] == "off"
        assert int(given["proxy-body-size"].removesuffix("m")) * 1024 * 1024 > largest[name]
        [rule], [tls] = ingress["spec"]["rules"], ingress["spec"]["tls"]
        assert [rule["host"]] == tls["hosts"]
    waits_s = int(ingresses["edge"]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"])
    assert waits_s > int(environ_of(resources, "edge")["LEGATO_STREAM_LIFE_S"])
    hosts = {name: ingress["spec"]["rules"][0]["host"] for name, ingress in ingresses.items()}
    assert hosts == {"edge": "api.example.ca", "console": "console.example.ca"}


def test_certificates_are_the_identities_that_processes_have() -> None:
    certificates = by_kind(render(PRODUCTION), "Certificate")
    del certificates["authority"]
    roles = set()
    for name, spec in certificates.items():
        role = role_of(spec["uris"])
        assert role is not None
        assert spec["secretName"] == name == f"tls-{role.value}"
        assert spec.get("dnsNames", []) == ([role.value] if role in SERVERS else [])
        assert {"server auth", "client auth"} <= set(spec["usages"])
        roles.add(role)
    assert roles == set(Role) - {Role.CALLER}


def test_cert_manager_and_external_secrets_make_every_secret_that_pods_use() -> None:
    resources = render_with_all(PRODUCTION)
    certificates = {spec["secretName"] for spec in by_kind(resources, "Certificate").values()} - {"authority"}
    external = by_kind(resources, "ExternalSecret")
    assert certificates | external.keys() == secrets_of(resources)
    for name, spec in external.items():
        assert spec["dataFrom"] == [{"extract": {"key": f"legato/{name}"}}]


def test_the_rules_of_the_operator_are_those_of_prometheus() -> None:
    rules = by_kind(render(PRODUCTION), "PrometheusRule")
    alerts = YAML(typ="safe").load(ROOT / "deploy" / "observability" / "alerts.yml")
    assert rules == {"legato": alerts}, "run make alerts"


def test_every_process_with_metrics_is_scraped_under_the_name_that_alerts_know() -> None:
    resources = render_with_all(PRODUCTION)
    [monitor] = by_kind(resources, "PodMonitor").values()
    [endpoint] = monitor["podMetricsEndpoints"]
    jobs = set()
    for _, workload, container in containers(resources):
        labels = template_of(workload)["metadata"]["labels"]
        assert monitor["selector"]["matchLabels"].items() <= labels.items()
        if endpoint["port"] in [port["name"] for port in container.get("ports", [])]:
            jobs.add(labels[monitor["jobLabel"]])
    assert jobs == {"auth", "console", "edge", "metering", "operator-console", "payments", "router"}


def test_the_dashboard_is_found_by_grafana() -> None:
    [dashboard] = [
        resource for resource in render(PRODUCTION) if resource["metadata"]["name"] == "grafana-dashboard-legato"
    ]
    assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert dashboard["data"].keys() == {"legato.json"}


def test_payments_come_by_a_component_alone_with_the_rules_of_all_others() -> None:
    assert "payments" not in [container["name"] for _, _, container in containers(render(PRODUCTION))]
    resources = render_with_all(PRODUCTION)
    assert (not_restricted(resources), careless(resources)) == ([], [])
    for name in ("console", "operator-console"):
        assert environ_of(resources, name)["LEGATO_PAYMENTS_ADDRESS"] == "payments:7004"
    told = {name: environment(container, resources) for name, _, container in containers(resources)}
    with_secrets = [name for name, environ in told.items() if any("STRIPE" in variable for variable in environ)]
    assert with_secrets == ["Deployment/payments/payments"]


def test_auth_reaches_an_issuer_and_mail_by_a_component_alone() -> None:
    [policy] = read_yaml((KUBERNETES / "components" / "sign-in" / "network-policy.yaml").read_text())
    assert policy["spec"]["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "auth"}
    assert name_of(policy) not in [name_of(resource) for resource in render(PRODUCTION)]
    assert name_of(policy) in [name_of(resource) for resource in render_with_all(PRODUCTION)]


def test_backups_have_the_rules_of_all_others_and_are_restored_by_hand_alone() -> None:
    resources = render_with_all(PRODUCTION)
    jobs = by_kind(resources, "CronJob")
    assert jobs.keys() == {"backup", "restore"}
    assert (jobs["restore"]["suspend"], jobs["backup"].get("suspend")) == (True, None)
    assert (not_restricted(resources), careless(resources)) == ([], [])
    assert abroad(resources, on_one_machine=False) == []
    for name in jobs:
        environ = environ_of(resources, name)
        read = {PREFIX + field.name.upper() for field in msgspec.structs.fields(BackupSettings)} | {"LEGATO_DATA"}
        given = {re.sub("_FILE$", "", variable) for variable in environ if variable.startswith(PREFIX)}
        assert {variable for variable in given if not variable.endswith("_REGION")} <= read
        [command] = [container["command"] for _, _, container in containers(resources) if container["name"] == name]
        arguments = [environ["BACKUP_TARGET"] if each == "$(BACKUP_TARGET)" else each for each in command[2:]]
        # Options that there are.
        {"backup": backup, "restore": restore}[command[1]].make_context(command[1], arguments)
        [mounts] = [each["volumeMounts"] for _, _, each in containers(resources) if each["name"] == name]
        [volume] = [
            mount["mountPath"] for mount in mounts if mount["name"] in by_kind(resources, "PersistentVolumeClaim")
        ]
        assert environ["BACKUP_TARGET"].startswith(f"{volume}/")
