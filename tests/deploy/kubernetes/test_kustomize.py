import re
from pathlib import Path

import pytest

from tests.deploy.kubernetes.kustomize import ONE_NODE, PRODUCTION, build, render_with_all
from tests.deploy.kubernetes.policies import name_of, pod_of


@pytest.mark.parametrize("overlay", [ONE_NODE, PRODUCTION], ids=lambda overlay: overlay.name)
def test_routes_that_change_start_the_routers_anew(overlay: Path) -> None:
    """The name of the file's ConfigMap changes with it, as the runbook says, and so does what routers are made of."""
    resources = build(overlay)

    [routes] = [resource for resource in resources if "routes.toml" in resource.get("data", {})]
    [router] = [resource for resource in resources if name_of(resource) == "Deployment/router"]
    assert re.fullmatch("routes-[a-z0-9]{10}", routes["metadata"]["name"])
    assert {"name": "routes", "configMap": {"name": routes["metadata"]["name"]}} in pod_of(router)["volumes"]


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
