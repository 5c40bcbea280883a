"""The manifests, rendered: valid, restricted, kept in Canada, and in agreement with what the processes read."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.commands.service.migrate import MigrateSettings
from console.settings import ConsoleServerSettings
from deploy.kubernetes_secrets import SECRETS
from edge.settings import EdgeSettings
from services.auth.settings import AuthSettings
from services.chassis.settings import PREFIX
from services.metering.settings import MeteringSettings
from services.payments.settings import PaymentsSettings
from services.router.grounding.settings import GroundingSettings
from services.router.local_model import LocalModelSettings
from services.router.settings import RouterSettings
from tests.deploy.kubernetes.kube import OVERLAY, PUBLISHED, for_podman
from tests.deploy.kubernetes.kustomize import KUBERNETES, Resource, render
from tests.deploy.kubernetes.policies import (
    abroad,
    careless,
    containers,
    environment,
    name_of,
    not_restricted,
    pod_of,
    workloads,
)

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
OVERLAYS = {path.name: path for path in sorted((KUBERNETES / "overlays").iterdir())}
SETTINGS: dict[str, tuple[type[msgspec.Struct], ...]] = {
    "auth": (AuthSettings,),
    "console": (ConsoleServerSettings,),
    "operator-console": (ConsoleServerSettings,),
    "edge": (EdgeSettings,),
    "local-model": (LocalModelSettings,),
    "metering": (MeteringSettings,),
    "payments": (PaymentsSettings,),
    "migrate": (MigrateSettings,),
    "router": (RouterSettings, GroundingSettings),
}
# What the command line reads, or what all read.
READ_BY_ALL = {
    "LEGATO_DATA",
    *(f"LEGATO_{store}_REGION" for store in ("AUDIT_COPY", "BACKUP", "DATA", "DATABASE", "VALKEY")),
}
SECONDS_TO_CLOSE = 20
SECONDS_TO_RESTART = 30


def rendered(overlay: str, *components: str) -> list[Resource]:
    return render(OVERLAYS[overlay], *components)


@pytest.fixture(params=OVERLAYS, name="overlay")
def any_overlay(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def resources(overlay: str) -> list[Resource]:
    return rendered(overlay)


def container_of(resources: list[Resource], name: str) -> dict[str, Any]:
    [found] = [container for _, _, container in containers(resources) if container["name"] == name]
    return found


def test_no_two_manifests_have_one_name(resources: list[Resource]) -> None:
    names = [name_of(resource) for resource in resources]
    assert len(names) == len(set(names))


def test_pods_may_do_nothing_that_they_need_not(resources: list[Resource]) -> None:
    assert not_restricted(resources) == []


def test_images_have_versions_and_containers_limits_and_probes(resources: list[Resource]) -> None:
    assert careless(resources) == []


def test_stores_are_in_canada(overlay: str, resources: list[Resource]) -> None:
    assert abroad(resources, on_one_machine=overlay == "one-node") == []


@pytest.mark.parametrize(
    "variable", ["LEGATO_AUDIT_COPY_REGION", "LEGATO_DATA_REGION", "LEGATO_DATABASE_REGION", "LEGATO_VALKEY_REGION"]
)
@pytest.mark.parametrize("region", ["us-east-1", "local", ""])
def test_a_store_abroad_is_found(variable: str, region: str) -> None:
    resources = rendered("production")
    [residency] = [resource for resource in resources if resource["metadata"]["name"] == "residency"]
    residency["data"][variable] = region

    assert any(variable in breach for breach in abroad(resources, on_one_machine=False))


def test_a_store_that_may_move_abroad_is_found() -> None:
    resources = rendered("production")
    [edge] = [resource for resource in resources if name_of(resource) == "Deployment/edge"]
    del pod_of(edge)["affinity"]

    assert abroad(resources, on_one_machine=False) == ["Deployment/edge/edge: may run outside Canada"]


def test_what_is_set_is_what_the_process_reads(resources: list[Resource]) -> None:
    for name, _, container in containers(resources):
        if container["name"] not in SETTINGS:
            continue
        kinds = SETTINGS[container["name"]]
        read = {PREFIX + field.name.upper() for kind in kinds for field in msgspec.structs.fields(kind)} | READ_BY_ALL
        given = {re.sub("_FILE$", "", variable) for variable in environment(container, resources)}
        assert given <= read, name


def test_processes_listen_where_their_ports_say(resources: list[Resource]) -> None:
    for service, port in (("auth", 7001), ("router", 7002), ("metering", 7003)):
        container = container_of(resources, service)
        environ = environment(container, resources)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"grpc": port, "health": 9091, "operations": 9090}
        for kind, name in (("", "grpc"), ("_HEALTH", "health"), ("_METRICS", "operations")):
            assert environ[f"LEGATO_{service.upper()}{kind}_LISTEN"] == f"0.0.0.0:{ports[name]}"
        assert container["readinessProbe"]["grpc"]["port"] == ports["health"]
    edge = container_of(resources, "edge")
    environ = environment(edge, resources)
    ports = {port["name"]: port["containerPort"] for port in edge["ports"]}
    assert environ["LEGATO_EDGE_PORT"] == str(ports["http"])
    assert environ["LEGATO_EDGE_RPC_LISTEN"] == f"0.0.0.0:{ports['grpc']}"
    assert environ["LEGATO_EDGE_OPERATIONS_LISTEN"] == f"0.0.0.0:{ports['operations']}"
    assert environ["LEGATO_EDGE_HEALTH_LISTEN"] == f"0.0.0.0:{edge['livenessProbe']['grpc']['port']}"


def test_an_edge_that_reaches_no_service_leaves_the_rotation_but_not_for_a_restart(resources: list[Resource]) -> None:
    edge = container_of(resources, "edge")
    assert edge["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "operations"}
    assert edge["readinessProbe"]["periodSeconds"] * edge["readinessProbe"]["failureThreshold"] >= SECONDS_TO_RESTART
    # It is never ended for what others lack: its journal waits for them.
    for probe in ("startupProbe", "livenessProbe"):
        assert "grpc" in edge[probe]


def test_the_edge_finds_every_replica_of_a_service_by_name(resources: list[Resource]) -> None:
    services = {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == "Service"}
    environ = environment(container_of(resources, "edge"), resources)
    for name in ("auth", "router", "metering"):
        host, _, port = environ[f"LEGATO_{name.upper()}_ADDRESS"].partition(":")
        assert services[host]["spec"]["clusterIP"] == "None"
        assert int(port) in [entry["port"] for entry in services[host]["spec"]["ports"]]


def test_a_rollout_breaks_no_answer(resources: list[Resource]) -> None:
    for workload in workloads(resources):
        if workload["metadata"]["name"] not in ("edge", "router"):
            continue
        environ = environment(container_of(resources, workload["metadata"]["name"]), resources)
        drain_s, delay_s = int(environ["LEGATO_DRAIN_S"]), int(environ["LEGATO_DRAIN_DELAY_S"])
        longest_answer_s = int(environment(container_of(resources, "edge"), resources)["LEGATO_STREAM_LIFE_S"])
        assert drain_s >= longest_answer_s
        assert pod_of(workload)["terminationGracePeriodSeconds"] >= delay_s + drain_s + SECONDS_TO_CLOSE
        assert workload["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_edge_and_metering_agree_on_how_long_an_answer_lives(resources: list[Resource]) -> None:
    lives = {
        environment(container_of(resources, name), resources)["LEGATO_STREAM_LIFE_S"] for name in ("edge", "metering")
    }
    assert len(lives) == 1


def test_replicas_of_metering_count_each_other_by_a_name_that_has_all_their_addresses(
    resources: list[Resource],
) -> None:
    environ = environment(container_of(resources, "metering"), resources)
    host, _, port = environ["LEGATO_METERING_PEERS"].partition(":")
    assert environ["LEGATO_METERING_LISTEN"].endswith(f":{port}")
    [service] = [resource for resource in resources if name_of(resource) == f"Service/{host}"]
    assert service["spec"]["clusterIP"] == "None"
    assert "LEGATO_METERING_REPLICAS" not in environ


def test_pods_are_reached_only_by_those_that_are_named(resources: list[Resource]) -> None:
    policies = {
        resource["metadata"]["name"]: resource["spec"] for resource in resources if resource["kind"] == "NetworkPolicy"
    }
    assert policies["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    # The public ports of edge and console alone are open to all.
    open_to_all = [
        (name, [entry["port"] for entry in rule["ports"]])
        for name, policy in policies.items()
        for rule in policy.get("ingress", [])
        if "from" not in rule
    ]
    assert sorted(open_to_all) == [("console", [8081]), ("edge", [8080])]
    [to_metering, to_providers, _] = policies["router"]["egress"]
    assert to_metering["ports"] == [{"port": 7003}]
    assert "169.254.0.0/16" in to_providers["to"][0]["ipBlock"]["except"]


def test_programs_reach_every_edge_by_one_name_and_nothing_behind_it(resources: list[Resource]) -> None:
    services = {
        resource["metadata"]["name"]: resource["spec"] for resource in resources if resource["kind"] == "Service"
    }
    assert services["edges"]["clusterIP"] == "None"
    assert 7000 in [entry["port"] for entry in services["edges"]["ports"]]
    program = {"namespaceSelector": {}, "podSelector": {"matchLabels": {"legato/caller": "true"}}}
    reached = [
        (resource["metadata"]["name"], entry["port"])
        for resource in resources
        if resource["kind"] == "NetworkPolicy"
        for rule in resource["spec"].get("ingress", [])
        if program in rule.get("from", [])
        for entry in rule["ports"]
    ]
    assert reached == [("edge", 7000)]


def test_operators_console_is_reached_from_nowhere_and_reaches_where_it_reads(resources: list[Resource]) -> None:
    policies = {
        resource["metadata"]["name"]: resource["spec"] for resource in resources if resource["kind"] == "NetworkPolicy"
    }
    assert policies["operator-console"]["policyTypes"] == ["Egress"]
    environ = environment(container_of(resources, "operator-console"), resources)
    assert environ["LEGATO_CONSOLE_ROLE"] == "operator-console"
    services = {
        resource["metadata"]["name"]: resource["spec"] for resource in resources if resource["kind"] == "Service"
    }
    for entry in environ["LEGATO_CONSOLE_STATUS_ADDRESSES"].split(","):
        host, _, port = entry.partition("=")[2].partition(":")
        if host == "127.0.0.1":
            # Itself.
            assert environ["LEGATO_CONSOLE_OPERATIONS_LISTEN"].endswith(f":{port}")
            continue
        assert services[host]["clusterIP"] == "None"
        assert int(port) in [each["port"] for each in services[host]["ports"]]
    origins = environment(container_of(resources, "auth"), resources)["LEGATO_CONSOLE_URL"].split(",")
    assert origins == [environ["LEGATO_CONSOLE_PUBLIC_URL"], environ["LEGATO_CONSOLE_URL"]]


def components_let_out_by(policy: dict[str, Any]) -> set[str]:
    selector = policy["podSelector"]
    [component] = selector.get("matchExpressions") or [{"values": [*selector["matchLabels"].values()]}]
    return set(component["values"])


def test_a_store_is_reached_by_those_alone_who_have_its_address(resources: list[Resource]) -> None:
    """The address is in a file, whose folder is that store's Secret."""
    holders: dict[int, set[str]] = {5432: set(), 6379: set()}
    for _, workload, container in containers(resources):
        environ = environment(container, resources)
        for port, variable in ((5432, "LEGATO_DATABASE_URL_FILE"), (6379, "LEGATO_VALKEY_URL_FILE")):
            if variable in environ:
                holders[port].add(workload["metadata"]["name"])
    let_out: dict[int, set[str]] = {5432: set(), 6379: set()}
    for resource in resources:
        for rule in resource["spec"].get("egress", []) if resource["kind"] == "NetworkPolicy" else []:
            for entry in rule.get("ports", []):
                if entry["port"] in let_out:
                    let_out[entry["port"]] |= components_let_out_by(resource["spec"])
    assert let_out == holders


def test_who_makes_spans_reaches_the_collector(resources: list[Resource]) -> None:
    [policy] = [resource for resource in resources if name_of(resource) == "NetworkPolicy/spans-to-collector"]
    tracing = {
        name
        for name, kinds in SETTINGS.items()
        if any(field.name == "otlp_endpoint" for kind in kinds for field in msgspec.structs.fields(kind))
    }
    assert components_let_out_by(policy["spec"]) == tracing
    [rule] = policy["spec"]["egress"]
    [[label]] = [to["podSelector"]["matchLabels"] for to in rule["to"]]
    assert f"`{label}`" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_every_service_can_lose_a_node_and_one_at_a_time(resources: list[Resource]) -> None:
    budgets = {
        resource["metadata"]["name"]: resource["spec"]["maxUnavailable"]
        for resource in resources
        if resource["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {
        "auth": 1,
        "console": 1,
        "edge": 1,
        "metering": 1,
        "operator-console": 1,
        "router": 1,
    }
    for workload in workloads(resources):
        if workload["metadata"]["name"] in budgets:
            spread = pod_of(workload)["topologySpreadConstraints"]
            assert [entry["topologyKey"] for entry in spread] == [
                "topology.kubernetes.io/zone",
                "kubernetes.io/hostname",
            ]


def test_secrets_are_those_that_the_guide_makes(resources: list[Resource]) -> None:
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    for workload in workloads(resources):
        for volume in pod_of(workload)["volumes"]:
            if "secret" in volume:
                assert f"`{volume['secret']['secretName']}`" in guide


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "auth",
            {
                "tls-auth",
                "database",
                "key-peppers",
                "access-token-signing-key",
                "credential-encryption-key",
                "sign-in",
                "object-store",
            },
        ),
        ("console", {"tls-console"}),
        ("operator-console", {"tls-operator-console"}),
        ("edge", {"tls-edge"}),
        ("metering", {"tls-metering", "database", "valkey", "access-token-public-keys"}),
        ("router", {"tls-router", "database", "grounding", "reasoning", "providers", "access-token-public-keys"}),
        ("local-model", set()),
        ("migrate", {"database"}),
    ],
)
def test_each_container_has_its_own_secrets_and_no_others(
    name: str, expected: set[str], resources: list[Resource]
) -> None:
    found = [(workload, container) for _, workload, container in containers(resources) if container["name"] == name]
    for workload, container in found:
        volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
        mounted = [volumes[mount["name"]] for mount in container["volumeMounts"]]
        told = [*container.get("envFrom", []), *(entry.get("valueFrom", {}) for entry in container.get("env", []))]
        secrets = {volume["secret"]["secretName"] for volume in mounted if "secret" in volume}
        secrets |= {given[kind]["name"] for given in told for kind in ("secretRef", "secretKeyRef") if kind in given}
        assert secrets == expected
    assert found or name == "local-model"


def test_files_of_secrets_are_entries_that_are_made(resources: list[Resource]) -> None:
    for name, workload, container in containers(resources):
        volumes = [volume for volume in pod_of(workload)["volumes"] if "secret" in volume]
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in volumes}
        mounts = {
            mount["mountPath"]: secrets[mount["name"]]
            for mount in container["volumeMounts"]
            if mount["name"] in secrets
        }
        for value in environment(container, resources).values():
            folder, _, entry = value.rpartition("/")
            if folder in mounts:
                assert entry in SECRETS[mounts[folder]], f"{name}: {value}"


@pytest.mark.parametrize(
    ("copy_of", "original"),
    [
        ("base/prices.toml", "prices.toml"),
        ("overlays/one-node/routes.toml", "routes.toml"),
    ],
)
def test_files_that_kustomize_wants_beside_it_are_true_copies(copy_of: str, original: str) -> None:
    assert (ROOT / "deploy" / "kubernetes" / copy_of).read_text() == (ROOT / original).read_text()


def test_kube_test_publishes_each_of_its_ports_once() -> None:
    ports = {name: 20_000 + number for number, name in enumerate(PUBLISHED)}
    pods = [pod_of(for_podman(workload, ports)) for workload in workloads(render(OVERLAY)) if workload["kind"] != "Job"]
    published = [port["hostPort"] for pod in pods for container in pod["containers"] for port in container["ports"]]
    assert sorted(published) == sorted(ports.values())
