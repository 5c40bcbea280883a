"""`make kube-test`: plays the overlay for one node with `podman kube play`, and uses the service like anybody would.

podman plays pods and no cluster. What a cluster would do besides is done here, and nothing else is changed: Services
give names, Secrets are handed over, a claim gets a volume.
"""

import base64
import copy
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.kubernetes_secrets import SECRETS, secrets_in
from tests.deploy.compose import free_port, make_key
from tests.deploy.engine import MODEL_IMAGE, ROOT, SERVICE_IMAGE, build_images, run
from tests.deploy.kubernetes.kustomize import Resource, render
from tests.deploy.kubernetes.policies import all_containers, pod_of, workloads
from tests.deploy.visit import WAIT_TIMEOUT_S, visit, visit_console

OVERLAY = ROOT / "deploy" / "kubernetes" / "overlays" / "one-node"
NETWORK = "legato-kube-test"
BASES = ("python:3.11-slim-bookworm", "postgres:17-bookworm", "valkey/valkey:8-bookworm")
IMAGES = {"legato:0.2.0": f"localhost/{SERVICE_IMAGE}", "legato-local-model:0.2.0": f"localhost/{MODEL_IMAGE}"}
# Who has a Service, and so a name.
NAMED = ("auth", "router", "metering", "postgres", "valkey")
# Whose HTTP port is published on this machine, each on one of its own; the consoles with the names that they answer to.
CONSOLES = {"console": "localhost:8081", "operator-console": "localhost:8082"}
PUBLISHED = ("edge", *CONSOLES)


def pod_name(workload: str) -> str:
    return f"{workload}-pod-0"


def with_podmans_names(text: str) -> str:
    """auth:7001 -> auth-pod-0:7001, …@postgres/… -> …@postgres-pod-0/…"""
    for name in NAMED:
        if text.startswith(f"{name}:"):
            return text.replace(name, pod_name(name), 1)
        text = text.replace(f"@{name}/", f"@{pod_name(name)}/").replace(f"@{name}:", f"@{pod_name(name)}:")
    return text


def for_podman(workload: Resource, ports: Mapping[str, int]) -> Resource:
    """Publishes the workloads in `ports` there, and no others."""
    changed = copy.deepcopy(workload)
    name, pod = changed["metadata"]["name"], pod_of(changed)
    for claim in changed["spec"].pop("volumeClaimTemplates", []):
        pod["volumes"].append({"name": claim["metadata"]["name"], "emptyDir": {}})
    for volume in pod["volumes"]:
        # podman has one volume for every name, whosever it is.
        volume["name"] = f"{name}-{volume['name']}"
        if "secret" in volume:
            # podman 4.3 falls over a Secret that does not say whether it is needed, and over one that does not exist.
            volume["secret"].setdefault("optional", False)
            if volume["secret"]["secretName"] not in SECRETS:
                del volume["secret"]
                volume["emptyDir"] = {}
    for container in all_containers(pod):
        _change_container(container, name, ports.get(name))
    # A StatefulSet is to podman what a Deployment is.
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": changed["metadata"], "spec": changed["spec"]}


def _change_container(container: dict[str, Any], workload_name: str, port: int | None) -> None:
    container["image"] = IMAGES.get(container["image"], container["image"])
    for mount in container["volumeMounts"]:
        mount["name"] = f"{workload_name}-{mount['name']}"
    for variable in container.get("env", []):
        if "value" in variable:
            variable["value"] = with_podmans_names(variable["value"])
    # podman would publish every port on this machine.
    container["ports"] = [
        given | {"hostPort": port, "hostIP": "127.0.0.1"}
        for given in container.get("ports", [])
        if given["name"] == "http" and port is not None
    ]


def for_podmans_store(secret: Resource, *, is_decoded: bool) -> Resource:
    """podman before 4.4 mounts what stands in `data` as it stands there; `is_decoded` says that this one decodes it."""
    decoded = {entry: base64.b64decode(value).decode() for entry, value in secret["data"].items()}
    data = {entry: with_podmans_names(value) for entry, value in decoded.items()}
    if is_decoded:
        data = {entry: base64.b64encode(value.encode()).decode() for entry, value in data.items()}
    return secret | {"data": data}


def decodes_secrets() -> bool:
    major, minor = run("podman", "version", "--format", "{{.Client.Version}}").strip().split(".")[:2]
    return (int(major), int(minor)) >= (4, 4)


@contextmanager
def played(ports: Mapping[str, int]) -> Iterator[None]:
    """Everything in pods; whatever happens, nothing of it is left."""
    resources = render(OVERLAY)
    with tempfile.TemporaryDirectory() as folder:
        manifest, home = Path(folder) / "legato.json", Path(folder) / "secrets"
        home.mkdir()
        is_decoded = decodes_secrets()
        secrets = [for_podmans_store(secret, is_decoded=is_decoded) for secret in secrets_in(home)]
        config_maps = [resource for resource in resources if resource["kind"] == "ConfigMap"]
        pods = [for_podman(workload, ports) for workload in workloads(resources)]
        # JSON is YAML, too.
        manifest.write_text("\n---\n".join(json.dumps(resource) for resource in [*config_maps, *pods]))
        try:
            run("podman", "network", "create", NETWORK)
            for secret in secrets:
                file = Path(folder) / f"{secret['metadata']['name']}.json"
                file.write_text(json.dumps(secret))
                run("podman", "secret", "create", secret["metadata"]["name"], str(file))
            run("podman", "kube", "play", "--network", NETWORK, str(manifest))
            yield
        finally:
            pod_names = [
                pod["metadata"]["name"] if pod["kind"] == "Pod" else pod_name(pod["metadata"]["name"]) for pod in pods
            ]
            volumes = [volume["name"] for pod in pods for volume in _pod_spec(pod)["volumes"]]
            names = [resource["metadata"]["name"] for resource in [*config_maps, *secrets]]
            _remove("pod", "rm", "--force", "--time", "5", *pod_names)
            _remove("volume", "rm", "--force", *volumes, *names)
            _remove("secret", "rm", *(secret["metadata"]["name"] for secret in secrets))
            _remove("network", "rm", "--force", NETWORK)


def _pod_spec(pod: Resource) -> dict[str, Any]:
    spec: dict[str, Any] = pod["spec"] if pod["kind"] == "Pod" else pod_of(pod)
    return spec


def _remove(*arguments: str) -> None:
    # One after the other: what is not there does not keep the rest.
    subprocess.run(["podman", *arguments], capture_output=True, check=False)


def legato(*arguments: str) -> Any:
    """One of the owner's commands."""
    said = run("podman", "exec", f"{pod_name('admin')}-admin", "legato", *arguments, "--json")
    return json.loads(said.strip().splitlines()[-1])


def wait_until_ready() -> None:
    """Until the edge has all its services: in a cluster no request would come before."""
    ask = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/readyz')"
    command = ["podman", "exec", f"{pod_name('edge')}-edge", "python", "-c", ask]
    end = time.monotonic() + WAIT_TIMEOUT_S
    while subprocess.run(command, capture_output=True, check=False).returncode:
        assert time.monotonic() < end, run("podman", "logs", f"{pod_name('edge')}-edge")
        time.sleep(2)


def main() -> None:
    build_images("podman", BASES)
    ports = {name: free_port() for name in PUBLISHED}
    base_url = f"http://127.0.0.1:{ports['edge']}/v1"
    with played(ports):
        wait_until_ready()
        print(run("podman", "pod", "ps", "--format", "{{.Name}} {{.Status}}"))
        visit(base_url, make_key(legato))
        for name, host in CONSOLES.items():
            visit_console(f"http://127.0.0.1:{ports[name]}", host)
        print("audit:", legato("audit"))
        print(run("podman", "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"))
    print("kube: all well")


if __name__ == "__main__":
    main()
