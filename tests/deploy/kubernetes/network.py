"""Evaluates network policies: which pod may reach what, as a cluster would decide it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Any

from tests.deploy.kubernetes.kustomize import Resource
from tests.deploy.kubernetes.policies import template_of, workloads

NAMESPACE = "legato"
Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Pod:
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE


def pods(resources: list[Resource]) -> dict[str, Pod]:
    """Returns one pod of each workload, by the workload's name."""
    return {
        workload["metadata"]["name"]: Pod(template_of(workload)["metadata"]["labels"])
        for workload in workloads(resources)
    }


def is_allowed(
    resources: list[Resource], source: Pod | Address, target: Pod | Address, port: int, protocol: str = "TCP"
) -> bool:
    leaves = _passes(resources, source, "Egress", target, (protocol, port))
    return leaves and _passes(resources, target, "Ingress", source, (protocol, port))


def _passes(
    resources: list[Resource], subject: Pod | Address, direction: str, peer: Pod | Address, port: tuple[str, int]
) -> bool:
    """Tells if the policies of one end let it communicate with the other. An end that no policy selects is free."""
    policies = [
        policy["spec"]
        for policy in resources
        if policy["kind"] == "NetworkPolicy"
        and direction in policy["spec"]["policyTypes"]
        and isinstance(subject, Pod)
        and subject.namespace == NAMESPACE
        and is_selected(policy["spec"]["podSelector"], subject.labels)
    ]
    rules = [rule for policy in policies for rule in policy.get(direction.lower(), [])]
    return not policies or any(_has_port(rule, port) and _has_peer(rule, direction, peer) for rule in rules)


def _has_port(rule: dict[str, Any], port: tuple[str, int]) -> bool:
    return "ports" not in rule or port in [(entry.get("protocol", "TCP"), entry["port"]) for entry in rule["ports"]]


def _has_peer(rule: dict[str, Any], direction: str, peer: Pod | Address) -> bool:
    given = rule.get("from" if direction == "Ingress" else "to")
    return given is None or any(_is_peer(entry, peer) for entry in given)


def _is_peer(entry: dict[str, Any], peer: Pod | Address) -> bool:
    if isinstance(peer, Address):
        block = entry.get("ipBlock")
        return (
            block is not None
            and peer in ip_network(block["cidr"])
            and not any(peer in ip_network(excepted) for excepted in block.get("except", []))
        )
    if "ipBlock" in entry:
        return False
    names = {"kubernetes.io/metadata.name": peer.namespace}
    in_namespace = (
        is_selected(entry["namespaceSelector"], names) if "namespaceSelector" in entry else peer.namespace == NAMESPACE
    )
    return in_namespace and is_selected(entry.get("podSelector", {}), peer.labels)


def is_selected(selector: dict[str, Any], labels: Mapping[str, str]) -> bool:
    expressions = selector.get("matchExpressions", [])
    assert all(expression["operator"] == "In" for expression in expressions), "an operator that is not known here"
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(expression["key"]) in expression["values"] for expression in expressions
    )


def selectors_in(thing: Any) -> Iterator[dict[str, str]]:
    """Yields each set of labels by which pods of this namespace are named, anywhere in a resource: one for each value
    of an expression."""
    if isinstance(thing, list):
        for item in thing:
            yield from selectors_in(item)
    elif isinstance(thing, dict):
        for name, value in thing.items():
            if name in ("podSelector", "labelSelector", "selector") and "namespaceSelector" not in thing:
                yield from _labels_of(value)
            else:
                yield from selectors_in(value)


def _labels_of(selector: dict[str, Any]) -> Iterator[dict[str, str]]:
    if isinstance(next(iter(selector.values()), None), str):
        # A Service's.
        yield selector
    if "matchLabels" in selector:
        yield selector["matchLabels"]
    for expression in selector.get("matchExpressions", []):
        for value in expression["values"]:
            yield {expression["key"]: value}
