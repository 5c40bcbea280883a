import tomllib
from ipaddress import IPv4Address, ip_address
from pathlib import PurePosixPath

import pytest

from services.router.routes.routes import load_routes
from tests.deploy.kubernetes.connections import allowed_connections, connections, named_services, unreachable_providers
from tests.deploy.kubernetes.kustomize import ONE_NODE, PRODUCTION, Resource, render, render_with_all
from tests.deploy.kubernetes.network import Pod, is_allowed, pods
from tests.deploy.kubernetes.policies import containers, workloads
from tests.deploy.kubernetes.references import container_ports, service_ports

pytestmark = pytest.mark.long

IN_THE_STORES_NETWORK = IPv4Address("10.0.3.4")


@pytest.fixture(params=[ONE_NODE, PRODUCTION], ids=lambda overlay: overlay.name, name="resources")
def resources_with_all_components(request: pytest.FixtureRequest) -> list[Resource]:
    return render_with_all(request.param)


def test_policies_allow_the_connections_that_settings_name_and_no_others(resources: list[Resource]) -> None:
    needed = connections(resources)
    assert {("edge", "metering", 7003), ("operator-console", "edge", 9090), ("payments", "metering", 7003)} <= needed
    assert allowed_connections(resources) == needed


def test_settings_name_services_that_exist(resources: list[Resource]) -> None:
    ports = service_ports(resources)
    stores = () if ("postgres", 5432) in ports else ("postgres", "valkey")
    unknown = [named for named in named_services(resources) if named[1:] not in ports and named[1] not in stores]
    assert unknown == []


def test_stores_outside_the_cluster_are_reached_by_those_that_have_their_addresses() -> None:
    resources = render(PRODUCTION)
    for port, store in ((5432, "postgres"), (6379, "valkey")):
        holders = {source for source, host, _ in named_services(resources) if host == store}
        reached_by = {
            name for name, pod in pods(resources).items() if is_allowed(resources, pod, IN_THE_STORES_NETWORK, port)
        }
        assert reached_by == holders != set()


def test_prometheus_reaches_the_metrics_of_every_process(resources: list[Resource]) -> None:
    prometheus = Pod(namespace="monitoring")
    for workload in workloads(resources):
        port = container_ports(workload).get("operations")
        if port is not None:
            assert is_allowed(resources, prometheus, pods(resources)[workload["metadata"]["name"]], port)
    assert not is_allowed(resources, prometheus, pods(resources)["auth"], 7001)


def test_routers_reach_every_address_of_the_routes(resources: list[Resource]) -> None:
    assert unreachable_providers(resources) == []


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:11434/v1", "http://localhost:443", "http://vllm.internal:8000/v1", "https://10.1.2.3"]
)
def test_addresses_that_the_policies_forbid_are_found(address: str) -> None:
    resources = render(PRODUCTION)
    [routes] = [resource for resource in resources if resource["metadata"]["name"] == "routes"]
    routes["data"]["routes.toml"] = f'[providers.new]\nbase_url = "{address}"\n'
    assert unreachable_providers(resources) == [address]


def test_routes_of_production_are_valid_and_find_their_keys_where_they_are_mounted() -> None:
    load_routes(PRODUCTION / "routes.toml", has_keys=False)
    providers = tomllib.loads((PRODUCTION / "routes.toml").read_text())["providers"]
    folders = {PurePosixPath(provider["api_key_file"]).parent for provider in providers.values()}
    [router] = [container for _, _, container in containers(render(PRODUCTION)) if container["name"] == "router"]
    [mount] = [mount for mount in router["volumeMounts"] if mount["name"] == "providers"]
    assert folders == {PurePosixPath(mount["mountPath"])}


def test_names_are_asked_of_the_cluster_or_of_a_cache_of_the_node(resources: list[Resource]) -> None:
    caches = [Pod({"k8s-app": name}, namespace="kube-system") for name in ("kube-dns", "node-local-dns")]
    # NodeLocal DNSCache, and Cloud DNS for GKE, whose address gives credentials at another port.
    addresses = [ip_address("169.254.20.10"), ip_address("169.254.169.254")]
    for name, pod in pods(resources).items():
        for server in (*caches, *addresses):
            for protocol in ("UDP", "TCP"):
                assert is_allowed(resources, pod, server, 53, protocol), (name, server)


@pytest.mark.parametrize("outside", ["203.0.113.7", "2001:db8::7"])
def test_who_may_leave_the_cluster_does_so_by_both_protocols(outside: str) -> None:
    resources = render_with_all(PRODUCTION)
    leaving = {name for name, pod in pods(resources).items() if is_allowed(resources, pod, ip_address(outside), 443)}
    assert leaving == {"auth", "backup", "payments", "restore", "router"}


@pytest.mark.parametrize("inside", ["10.200.0.1", "fd00::1", "fe80::1", "::1", "64:ff9b::a00:1", "169.254.170.23"])
def test_nobody_reaches_what_is_inside_at_the_port_of_the_outside(inside: str) -> None:
    resources = render_with_all(PRODUCTION)
    assert [name for name, pod in pods(resources).items() if is_allowed(resources, pod, ip_address(inside), 443)] == []


# Where a cloud gives pods their credentials.
IDENTITY = {
    "gke": [
        ("169.254.169.254", 80),
        ("169.254.169.254", 8080),
        ("169.254.169.252", 987),
        ("169.254.169.252", 988),
    ],
    "eks": [("169.254.170.23", 80), ("fd00:ec2::23", 80)],
}


@pytest.mark.parametrize("cloud", IDENTITY)
def test_who_uses_a_bucket_gets_the_credentials_of_its_pod_by_a_component_alone(cloud: str) -> None:
    components = ("backup", "backup/bucket")
    for address, port in IDENTITY[cloud]:
        for added, expected in (((), set()), ((f"pod-identity/{cloud}",), {"auth", "backup", "restore"})):
            resources = render(PRODUCTION, *components, *added)
            reaching = {
                name for name, pod in pods(resources).items() if is_allowed(resources, pod, ip_address(address), port)
            }
            assert reaching == expected, (address, port)
