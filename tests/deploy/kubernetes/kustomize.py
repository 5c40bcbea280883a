"""Renders overlays as `kubectl apply -k` does."""

import copy
import functools
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support.toolchains.kustomize import find_kustomize

Resource = dict[str, Any]

ROOT = Path(__file__).parents[3]
KUBERNETES = ROOT / "deploy" / "kubernetes"
TIMEOUT_S = 60


def read_yaml(text: str) -> list[Any]:
    return [document for document in YAML(typ="safe").load_all(text) if document]


def build(folder: Path) -> list[Resource]:
    """Renders a kustomization with nothing changed. A warning, such as of a deprecated field, fails the test."""
    built = subprocess.run(
        [find_kustomize(), "build", str(folder)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return read_yaml(built.stdout)


def render(overlay: Path, *components: str) -> list[Resource]:
    """Renders an overlay, to which these components are added. Generated ConfigMaps have their plain names, without the
    digest of what they contain."""
    return copy.deepcopy(_render(overlay, components))


@functools.cache
def _render(overlay: Path, components: tuple[str, ...]) -> list[Resource]:
    if not components:
        return without_digests(build(overlay))
    with tempfile.TemporaryDirectory() as folder:
        changed = shutil.copytree(KUBERNETES, Path(folder) / "kubernetes") / overlay.relative_to(KUBERNETES)
        file = changed / "kustomization.yaml"
        [kustomization] = read_yaml(file.read_text())
        paths = [f"../../components/{name}" for name in components]
        kustomization["components"] = [*kustomization.get("components", []), *paths]
        YAML().dump(kustomization, file)
        return without_digests(build(changed))


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
