"""Validates resources: those of Kubernetes by its schemas, custom ones by the types of their projects."""

import functools
import json
import re
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.deploy.kubernetes.kustomize import ROOT, Resource
from tests.support.toolchains.node import node_environ, npm_ci

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from referencing import Registry

VERSIONS = ("1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34")
# By the group of a custom resource: the package with its types.
PACKAGES = {
    "cert-manager.io": "cert-manager",
    "external-secrets.io": "external-secrets",
    "gateway.networking.k8s.io": "gateway-api",
    "keda.sh": "keda",
    "monitoring.coreos.com": "prometheus-operator",
}
TIMEOUT_S = 120


def is_custom(resource: Resource) -> bool:
    return resource["apiVersion"].partition("/")[0] in PACKAGES


def mistakes(resource: Resource, version: str) -> list[str]:
    """Names what the API server of a version refuses, or drops because it does not know it."""
    validator = _validator(version, resource["apiVersion"], resource["kind"])
    where = f"{resource['kind']}/{resource['metadata']['name']} in {version}"
    return [f"{where}: {error.json_path}: {error.message}" for error in validator.iter_errors(resource)]


@functools.cache
def _validator(version: str, api_version: str, kind: str) -> "Draft202012Validator":
    # Takes seconds to import, and each test process imports this module.
    from jsonschema import Draft202012Validator

    # rbac.authorization.k8s.io/v1 -> rbac-v1
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    schema = _read(version, f"{kind.lower()}-{group}.json")
    return Draft202012Validator(schema, registry=_definitions(version))


@functools.cache
def _definitions(version: str) -> "Registry[Any]":
    from referencing import Registry
    from referencing import Resource as Schema

    definitions = Schema.from_contents(_read(version, "_definitions.json"))
    registry: Registry[Any] = Registry().with_resource(str(definitions.id()), definitions)
    return registry


def _read(version: str, name: str) -> Any:
    return json.loads((_schemas() / f"v{version}.0-local-strict" / name).read_text())


@functools.cache
def _schemas() -> Path:
    # Found rather than imported, since the package imports jsonschema.
    package = find_spec("kubernetes_validate")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).with_name("kubernetes-json-schema")


def mistakes_of_custom_resources(resources: list[Resource]) -> str:
    """Returns what the compiler says of them as constants of their types, in which it knows every field."""
    models = npm_ci(ROOT / "requirements" / "kubernetes", "kubernetes-models") / "node_modules"
    compiler = npm_ci(ROOT / "requirements" / "typescript", "typescript") / "node_modules" / ".bin" / "tsc"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "node_modules").symlink_to(models)
        (Path(folder) / "package.json").write_text('{"type": "module"}')
        lines = []
        for number, resource in enumerate(resources):
            kind, api_version = resource["kind"], resource["apiVersion"]
            package = PACKAGES[api_version.partition("/")[0]]
            lines.append(
                f'import type {{ I{kind} as T{number} }} from "@kubernetes-models/{package}/{api_version}/{kind}";'
            )
            lines.append(f"export const r{number}: T{number} = {json.dumps(resource)};")
        (Path(folder) / "resources.ts").write_text("\n".join(lines))
        options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "esnext"]
        checked = subprocess.run(
            [compiler, *options, "resources.ts"],
            cwd=folder,
            env=node_environ(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    return checked.stdout + checked.stderr
