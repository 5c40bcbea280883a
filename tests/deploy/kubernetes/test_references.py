from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.kubernetes.kustomize import ONE_NODE, PRODUCTION, Resource, render, render_with_all
from tests.deploy.kubernetes.policies import name_of, pod_of
from tests.deploy.kubernetes.references import broken_references

pytestmark = pytest.mark.long


def change(resources: list[Resource], name: str, change_it: Callable[[Resource], object]) -> None:
    [resource] = [resource for resource in resources if name_of(resource) == name]
    change_it(resource)


@pytest.mark.parametrize("overlay", [ONE_NODE, PRODUCTION], ids=lambda overlay: overlay.name)
def test_whatever_is_referred_to_exists(overlay: Path) -> None:
    for resources in (render(overlay), render_with_all(overlay)):
        assert broken_references(resources) == []


@pytest.mark.parametrize(
    ("name", "change_it", "broken"),
    [
        (
            "Deployment/auth",
            lambda auth: pod_of(auth).update(serviceAccountName="autj"),
            "Deployment/auth refers to ServiceAccount/autj",
        ),
        (
            "Service/edge",
            lambda edge: edge["spec"]["ports"][0].update(targetPort="web"),
            "Service/edge: nothing is behind port 80",
        ),
        (
            "ConfigMap/addresses",
            lambda addresses: addresses["data"].pop("api-url"),
            "Deployment/console: addresses has no api-url",
        ),
        (
            "HTTPRoute/console",
            lambda route: route["spec"]["rules"][0]["backendRefs"][0].update(port=81),
            "HTTPRoute/console: no port 81 of Service/console",
        ),
        (
            "HorizontalPodAutoscaler/edge",
            lambda scaler: scaler["spec"]["scaleTargetRef"].update(name="edges"),
            "HorizontalPodAutoscaler/edge refers to Deployment/edges",
        ),
        (
            "NetworkPolicy/services-to-database",
            lambda policy: policy["spec"]["podSelector"]["matchExpressions"][0]["values"].append("ledger"),
            "NetworkPolicy/services-to-database selects no pod by {'app.kubernetes.io/component': 'ledger'}",
        ),
        (
            "Deployment/router",
            lambda router: pod_of(router)["volumes"].pop(),
            "Deployment/router: the volume",
        ),
        (
            "Deployment/edge",
            lambda edge: pod_of(edge)["containers"][0]["readinessProbe"]["httpGet"].update(port="metrics"),
            "Deployment/edge: readinessProbe",
        ),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_found(name: str, change_it: Callable[[Resource], object], broken: str) -> None:
    resources = render(PRODUCTION)
    change(resources, name, change_it)
    assert any(breach.startswith(broken) for breach in broken_references(resources))
