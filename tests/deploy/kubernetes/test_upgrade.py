"""One release applied over another, by `kubectl apply -k`, Argo or Flux, with nothing deleted before."""

from pathlib import Path

import pytest

from cli.commands.service.migrate import FOLDERS
from tests.deploy.kubernetes.kustomize import Resource, render
from tests.deploy.kubernetes.policies import containers, environment, name_of, workloads

pytestmark = pytest.mark.long

OVERLAYS = Path(__file__).parents[3] / "deploy" / "kubernetes" / "overlays"
# Of 0.2.0; a Service cannot get or lose its address.
WITH_ADDRESS = {"edge", "console", "operator-console"}
WITHOUT_ADDRESS = {
    "auth", "router", "metering", "edges", "edge-status", "postgres", "valkey", "edge-operations", "console-operations",
    "console-status",
}  # fmt: skip
STORE_SETTINGS = ("LEGATO_DATA", "LEGATO_DATABASE")


@pytest.fixture(params=["one-node", "production"])
def resources(request: pytest.FixtureRequest) -> list[Resource]:
    return render(OVERLAYS / request.param)


def test_services_with_a_schema_migrate_it_before_they_start_with_their_own_image(resources: list[Resource]) -> None:
    pods = {(workload["metadata"]["name"], each["name"]): each for _, workload, each in containers(resources)}
    assert sorted(name for name, container in pods if container == "migrate") == sorted(FOLDERS)
    for service in FOLDERS:
        migrating, own = pods[service, "migrate"], pods[service, service]
        assert migrating["command"] == ["legato", "migrate", service]
        assert migrating["image"] == own["image"]
        stores = [
            {name: value for name, value in environment(each, resources).items() if name.startswith(STORE_SETTINGS)}
            for each in (migrating, own)
        ]
        assert stores[0] == stores[1]


def test_no_field_that_a_cluster_refuses_to_change_differs_from_the_last_release(resources: list[Resource]) -> None:
    # None of a Job's fields can be changed.
    assert [name_of(resource) for resource in resources if resource["kind"] == "Job"] == []
    for workload in workloads(resources):
        name = workload["metadata"]["name"]
        labels = {"app.kubernetes.io/name": "legato", "app.kubernetes.io/component": name}
        assert workload["spec"]["selector"] == {"matchLabels": labels}, name
        if workload["kind"] == "StatefulSet":
            [claim] = workload["spec"]["volumeClaimTemplates"]
            was = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
            assert (name, workload["spec"]["serviceName"], claim["metadata"]["name"]) == (
                "postgres",
                "postgres",
                "data",
            )
            assert claim["spec"] == was
    for resource in resources:
        if resource["kind"] == "Service" and resource["metadata"]["name"] in WITH_ADDRESS | WITHOUT_ADDRESS:
            has_none = resource["spec"].get("clusterIP") == "None"
            assert has_none is (resource["metadata"]["name"] in WITHOUT_ADDRESS), name_of(resource)
