"""Evaluates network policies: which pod may reach what, as a cluster would decide it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from tests.deploy.kubernetes.kustomize import Resource
from tests.deploy.kubernetes.policies import template_of, workloads

NAMESPACE = "legato"


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


def is_allowed(resources: list[Resource], source: Pod | IPv4Address, target: Pod | IPv4Address, port: int) -> bool:
    return _passes(resources, source, "Egress", target, port) and _passes(resources, target, "Ingress", source, port)


def _passes(
    resources: list[Resource], subject: Pod | IPv4Address, direction: str, peer: Pod | IPv4Address, port: int
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


def _has_port(rule: dict[str, Any], port: int) -> bool:
    return "ports" not in rule or port in [
        entry["port"] for entry in rule["ports"] if entry.get("protocol", "TCP") == "TCP"
    ]


def _has_peer(rule: dict[str, Any], direction: str, peer: Pod | IPv4Address) -> bool:
    given = rule.get("from" if direction == "Ingress" else "to")
    return given is None or any(_is_peer(entry, peer) for entry in given)


def _is_peer(entry: dict[str, Any], peer: Pod | IPv4Address) -> bool:
    if isinstance(peer, IPv4Address):
        block = entry.get("ipBlock")
        return (
            block is not None
            and peer in IPv4Network(block["cidr"])
            and not any(peer in IPv4Network(excepted) for excepted in block.get("except", []))
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
