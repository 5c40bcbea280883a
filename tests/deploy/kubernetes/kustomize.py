"""Renders overlays as `kubectl apply -k` does."""

import copy
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.toolchains.kustomize import find_kustomize

Resource = dict[str, Any]

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
ONE_NODE, PRODUCTION = (KUBERNETES / "overlays" / name for name in ("one-node", "production"))
COMPONENTS = {
    str(path.parent.relative_to(KUBERNETES / "components"))
    for path in (KUBERNETES / "components").rglob("kustomization.yaml")
}
TIMEOUT_S = 60


def read_yaml(text: str) -> list[Any]:
    # Ten times as fast as ruamel.yaml.
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def build(folder: Path, *, may_warn: bool = False) -> list[Resource]:
    """Renders a kustomization with nothing changed. A warning, such as of a deprecated field, fails the test, unless it
    is a release's."""
    built = subprocess.run(
        [find_kustomize(), "build", str(folder)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (built.returncode, "" if may_warn else built.stderr) == (0, ""), built.stderr
    return read_yaml(built.stdout)


def render(overlay: Path, *components: str, without: str = "") -> list[Resource]:
    """Renders an overlay to which these components are added, and from which one is taken. Generated ConfigMaps have
    their plain names, without the digest of what they contain."""
    return copy.deepcopy(_render(overlay, components, without))


@functools.cache
def _render(overlay: Path, components: tuple[str, ...], without: str) -> list[Resource]:
    if not components:
        return without_digests(build(overlay))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kubernetes", "observability"):
            shutil.copytree(ROOT / "deploy" / name, Path(folder) / name)
        changed = Path(folder) / "kubernetes" / overlay.relative_to(KUBERNETES)
        file = changed / "kustomization.yaml"
        [kustomization] = read_yaml(file.read_text())
        paths = [*kustomization.get("components", []), *(f"../../components/{name}" for name in components)]
        kustomization["components"] = [path for path in paths if path != f"../../components/{without}"]
        file.write_text(yaml.safe_dump(kustomization))
        return without_digests(build(changed))


def render_with_all(overlay: Path) -> list[Resource]:
    """Renders an overlay with every component that can be added to it; keda stands in place of autoscaling."""
    [kustomization] = read_yaml((overlay / "kustomization.yaml").read_text())
    has = {path.removeprefix("../../components/") for path in kustomization.get("components", [])}
    return render(overlay, *sorted(COMPONENTS - has - {"autoscaling"}), without="autoscaling")


def without_digests(resources: list[Resource]) -> list[Resource]:
    digested = {
        resource["metadata"]["name"]: re.sub(r"-[a-z0-9]{10}$", "", resource["metadata"]["name"])
        for resource in resources
        if resource["kind"] == "ConfigMap"
    }

    def renamed(thing: Any) -> Any:
        if isinstance(thing, dict):
            return {key: renamed(value) for key, value in thing.items()}
        if isinstance(thing, list):
            return [renamed(item) for item in thing]
        return digested.get(thing, thing) if isinstance(thing, str) else thing

    return [renamed(resource) for resource in resources]
