import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.kubernetes.kustomize import MERGE_KEYS, Resource, read_yaml, render, without_digests
from tests.deploy.kubernetes.policies import name_of, pod_of
from tests.support.servers.debian import find_program

KUBERNETES = Path(__file__).parents[3] / "deploy" / "kubernetes"
OVERLAYS = sorted(path.parent for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
TIMEOUT_S = 60


def in_order(thing: Any, name: str = "") -> Any:
    """Sorts items that a key tells apart: their order says nothing."""
    if isinstance(thing, dict):
        return {key: in_order(value, key) for key, value in thing.items()}
    if not isinstance(thing, list):
        return thing
    items = [in_order(item) for item in thing]
    key = MERGE_KEYS.get(name)
    # The ports of Services and policies have other keys than those of containers.
    has_keys = key is not None and all(isinstance(item, dict) and key in item for item in items)
    return sorted(items, key=lambda item: str(item[key])) if has_keys else items


def by_name(resources: list[Resource]) -> dict[tuple[str, str], Any]:
    return {(resource["kind"], resource["metadata"]["name"]): in_order(resource) for resource in resources}


def rendered_by_kubectl(overlay: Path) -> list[Resource]:
    kubectl = find_program("kubectl", "kubernetes-client").path
    rendered = subprocess.run(
        [kubectl, "kustomize", str(overlay)], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    return read_yaml(rendered.stdout)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.name)
def test_kubectl_renders_what_is_tested_here(overlay: Path) -> None:
    assert by_name(without_digests(rendered_by_kubectl(overlay))) == by_name(render(overlay))


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda overlay: overlay.name)
def test_routes_that_change_start_the_routers_anew(overlay: Path) -> None:
    """The name of the file's ConfigMap changes with it, as the runbook says, and so does what routers are made of."""
    resources = rendered_by_kubectl(overlay)

    [routes] = [resource for resource in resources if "routes.toml" in resource.get("data", {})]
    [router] = [resource for resource in resources if name_of(resource) == "Deployment/router"]
    assert re.fullmatch("routes-[a-z0-9]{10}", routes["metadata"]["name"])
    assert {"name": "routes", "configMap": {"name": routes["metadata"]["name"]}} in pod_of(router)["volumes"]


def test_a_patch_changes_what_it_names_and_leaves_the_rest(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "namespace: here\nresources: [pod.yaml]\npatchesStrategicMerge: [patch.yaml]\n"
    )
    (tmp_path / "pod.yaml").write_text(
        "{kind: Pod, metadata: {name: a}, spec: {hostNetwork: true, containers: [{name: c, env: ["
        "{name: X, value: one}, {name: Y, value: two}]}]}}"
    )
    (tmp_path / "patch.yaml").write_text(
        "{kind: Pod, metadata: {name: a}, spec: {hostNetwork: null, containers: [{name: c, env: ["
        "{name: Y, value: three}]}, {name: d}]}}"
    )

    [pod] = render(tmp_path)

    assert pod["metadata"] == {"name": "a", "namespace": "here"}
    assert pod["spec"] == {
        "containers": [
            {"name": "c", "env": [{"name": "X", "value": "one"}, {"name": "Y", "value": "three"}]},
            {"name": "d"},
        ]
    }
