"""Derives from the settings of processes, and from routes, what each of them connects to."""

import re
import tomllib
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Any
from urllib.parse import urlsplit

from tests.deploy.kubernetes.kustomize import Resource
from tests.deploy.kubernetes.network import Pod, is_allowed, pods
from tests.deploy.kubernetes.policies import containers, environment
from tests.deploy.kubernetes.references import service_ports

# auth:7001, edge=edge-status:9090,auth=auth:9090
ADDRESS = re.compile(r"(?:^|[=,])([a-z][a-z0-9-]*):(\d+)(?=$|[,;])")
# Names that are only resolved.
ONLY_RESOLVED = {"LEGATO_EDGE_PEERS", "LEGATO_METERING_PEERS"}
STORES = {"LEGATO_DATABASE_URL_FILE": ("postgres", 5432), "LEGATO_VALKEY_URL_FILE": ("valkey", 6379)}
# A server on the internet, in a block that is kept for examples.
OUTSIDE = IPv4Address("203.0.113.7")
PORTS = {"http": 80, "https": 443}


def named_services(resources: list[Resource]) -> Iterator[tuple[str, str, int]]:
    """Yields a workload, and the Service and port that a setting of it names."""
    for _, workload, container in containers(resources):
        for variable, value in environment(container, resources).items():
            if variable in STORES:
                yield workload["metadata"]["name"], *STORES[variable]
            elif variable not in ONLY_RESOLVED:
                for host, port in ADDRESS.findall(value):
                    yield workload["metadata"]["name"], host, int(port)


def connections(resources: list[Resource]) -> set[tuple[str, str, int]]:
    """Returns which workload connects to which other at which port."""
    ports = service_ports(resources)
    return {
        (source, target, target_port)
        for source, host, port in named_services(resources)
        for target, target_port in ports.get((host, port), ())
    }


def allowed_connections(resources: list[Resource]) -> set[tuple[str, str, int]]:
    """Returns which workload the policies let connect to which other at which port that it has."""
    by_name = pods(resources)
    behind = {pair for found in service_ports(resources).values() for pair in found}
    return {
        (source, target, port)
        for source in by_name
        for target, port in behind
        if source != target and is_allowed(resources, by_name[source], by_name[target], port)
    }


def urls_in(routes: Any) -> Iterator[str]:
    for value in routes.values():
        if isinstance(value, dict):
            yield from urls_in(value)
        elif isinstance(value, str) and "://" in value:
            yield value


def unreachable_providers(resources: list[Resource]) -> list[str]:
    """Returns the addresses in the routes that the policies do not let a router reach."""
    [routes] = [resource["data"]["routes.toml"] for resource in resources if resource["metadata"]["name"] == "routes"]
    router = pods(resources)["router"]
    found = []
    for url in urls_in(tomllib.loads(routes)):
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
        if not is_allowed(resources, router, _peer(parts.hostname or ""), port):
            found.append(url)
    return found


def _peer(host: str) -> Pod | IPv4Address:
    """A Service of another namespace stands for pods with the label that the guide asks for."""
    if host.endswith(".svc"):
        return Pod({"legato/called-by-router": "true"}, namespace=host.split(".")[-2])
    try:
        return IPv4Address("127.0.0.1" if host == "localhost" else host)
    except AddressValueError:
        return OUTSIDE
