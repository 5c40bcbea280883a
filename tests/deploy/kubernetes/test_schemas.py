"""Every resource of the overlays and components, by the schemas of the versions that the guide names."""

from collections.abc import Iterator

import pytest

from tests.deploy.kubernetes.kustomize import ONE_NODE, PRODUCTION, ROOT, Resource, render, render_with_all
from tests.deploy.kubernetes.schemas import VERSIONS, is_custom, mistakes, mistakes_of_custom_resources

pytestmark = pytest.mark.long


def different_resources() -> list[Resource]:
    found: list[Resource] = []
    for resources in (render(ONE_NODE), render(PRODUCTION), render_with_all(PRODUCTION)):
        found += [resource for resource in resources if resource not in found]
    return found


def test_resources_of_kubernetes_are_valid_in_every_version() -> None:
    given = [resource for resource in different_resources() if not is_custom(resource)]
    assert [mistake for version in VERSIONS for resource in given for mistake in mistakes(resource, version)] == []
    assert f"Kubernetes {VERSIONS[0]} to {VERSIONS[-1]}" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_custom_resources_are_valid() -> None:
    assert mistakes_of_custom_resources([resource for resource in different_resources() if is_custom(resource)]) == ""


def invalid_resources() -> Iterator[Resource]:
    metadata = {"name": "wrong"}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replica": 1}}
    yield {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": {}}


def test_mistakes_are_found() -> None:
    for resource in invalid_resources():
        assert [version for version in VERSIONS if not mistakes(resource, version)] == []
    [route] = [resource for resource in render(PRODUCTION) if resource["kind"] == "HTTPRoute"][:1]
    route["spec"]["rules"][0]["timeouts"]["respond"] = "1m"
    assert '"respond"' in mistakes_of_custom_resources([route])
