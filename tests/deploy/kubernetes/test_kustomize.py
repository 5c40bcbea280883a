from pathlib import Path

import pytest

from tests.deploy.kubernetes.kustomize import ONE_NODE, PRODUCTION, build, render_with_all
from tests.deploy.kubernetes.policies import name_of, pod_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize("overlay", [ONE_NODE, PRODUCTION], ids=lambda overlay: overlay.name)
def test_routes_and_prices_that_change_restart_nothing(overlay: Path) -> None:
    """Their ConfigMaps keep their names, and routers and metering follow the files that are mounted."""
    resources = build(overlay)

    for file, deployment in (("routes", "router"), ("prices", "metering")):
        [found] = [resource for resource in resources if f"{file}.toml" in resource.get("data", {})]
        [workload] = [resource for resource in resources if name_of(resource) == f"Deployment/{deployment}"]
        assert found["metadata"]["name"] == file
        assert {"name": file, "configMap": {"name": file}} in pod_of(workload)["volumes"]


def test_a_deprecated_field_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("patchesStrategicMerge: [patch.yaml]\n")
    (tmp_path / "patch.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: a}}")

    with pytest.raises(AssertionError, match="'patchesStrategicMerge' is deprecated"):
        build(tmp_path)


def test_what_an_overlay_demands_of_all_holds_for_what_a_component_adds() -> None:
    resources = render_with_all(PRODUCTION)

    [payments] = [resource for resource in resources if name_of(resource) == "Deployment/payments"]
    assert payments["metadata"]["namespace"] == "legato"
    assert "nodeAffinity" in pod_of(payments)["affinity"]
