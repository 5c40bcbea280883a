"""Reads a kustomization as `kubectl kustomize` does, as far as ours go: so the manifests are tested on any machine.

Where kubectl is installed, a test compares the two.
"""

import copy
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

Resource = dict[str, Any]

KNOWN_FIELDS = {
    "apiVersion", "kind", "namespace", "bases", "resources", "patchesStrategicMerge", "images", "configMapGenerator",
}  # fmt: skip
# These have no namespace.
CLUSTER_WIDE = ("Namespace",)
# By which field the items of a list are told apart; a list that is not here is replaced as a whole.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def read_yaml(text: str) -> list[Any]:
    return [document for document in YAML(typ="safe").load_all(text) if document]


def render(folder: Path) -> list[Resource]:
    """Generated ConfigMaps keep their plain names, without the digest that kustomize puts behind them."""
    [kustomization] = read_yaml((folder / "kustomization.yaml").read_text())
    assert set(kustomization) <= KNOWN_FIELDS, f"{folder} says more than is read here"
    resources = [resource for base in kustomization.get("bases", []) for resource in render(folder / base)]
    for file in kustomization.get("resources", []):
        resources += read_yaml((folder / file).read_text())
    resources += [_generate(folder, described) for described in kustomization.get("configMapGenerator", [])]
    for file in kustomization.get("patchesStrategicMerge", []):
        for patch in read_yaml((folder / file).read_text()):
            _patch(resources, patch)
    for image in kustomization.get("images", []):
        _set_image(resources, image)
    for resource in resources:
        if resource["kind"] not in CLUSTER_WIDE:
            resource["metadata"]["namespace"] = kustomization["namespace"]
    return resources


def add_component(resources: list[Resource], folder: Path) -> list[Resource]:
    """Returns the resources of an overlay that includes a component."""
    [component] = read_yaml((folder / "kustomization.yaml").read_text())
    resources = copy.deepcopy(resources)
    for file in component["resources"]:
        resources += read_yaml((folder / file).read_text())
    for file in component.get("patchesStrategicMerge", []):
        for patch in read_yaml((folder / file).read_text()):
            _patch(resources, patch)
    return resources


def without_digests(resources: list[Resource]) -> list[Resource]:
    """Renames the ConfigMaps that kubectl rendered as `render` names them."""
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


def _generate(folder: Path, described: dict[str, Any]) -> Resource:
    data = {file: (folder / file).read_text() for file in described.get("files", [])}
    data |= dict(literal.split("=", 1) for literal in described.get("literals", []))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": described["name"]}, "data": data}


def _patch(resources: list[Resource], patch: Resource) -> None:
    [target] = [
        resource
        for resource in resources
        if resource["kind"] == patch["kind"] and resource["metadata"]["name"] == patch["metadata"]["name"]
    ]
    _merge(target, patch)


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and isinstance(target.get(name), dict):
            _merge(target[name], value)
        elif isinstance(value, list) and name in MERGE_KEYS and name in target:
            target[name] = _merged_lists(target[name], value, MERGE_KEYS[name])
        else:
            target[name] = copy.deepcopy(value)


def _merged_lists(items: list[Any], patches: list[Any], key: str) -> list[Any]:
    merged = {item[key]: item for item in items}
    for patch in patches:
        if patch[key] in merged:
            _merge(merged[patch[key]], patch)
        else:
            merged[patch[key]] = copy.deepcopy(patch)
    return list(merged.values())


def _set_image(resources: list[Resource], image: dict[str, str]) -> None:
    for resource in resources:
        for container in resource.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
            name, _, tag = container["image"].rpartition(":")
            if name == image["name"]:
                container["image"] = f"{image.get('newName', name)}:{image.get('newTag', tag)}"
