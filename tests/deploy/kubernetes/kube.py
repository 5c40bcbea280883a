"""`make kube-test`: plays the overlay for one node with `podman kube play`: the last release's, and this one over it.

podman plays pods and no cluster. What a cluster would do besides is done here, and nothing else is changed: Services
give names, Secrets are handed over, a claim gets a volume, pods are replaced.
"""

import base64
import copy
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.kubernetes_secrets import SECRETS, secrets_in
from tests.deploy.compose import free_port
from tests.deploy.engine import ROOT, TAG, TARGETS, build_images, run
from tests.deploy.kubernetes.kustomize import Resource, build, render, without_digests
from tests.deploy.kubernetes.policies import all_containers, pod_of, workloads
from tests.deploy.visit import WAIT_TIMEOUT_S, Visitor, visit_console
from tests.support.releases import LAST, checkout

OVERLAY = ROOT / "deploy" / "kubernetes" / "overlays" / "one-node"
NETWORK = "legato-kube-test"
BASES = ("python:3.11-slim-bookworm", "postgres:17-bookworm", "valkey/valkey:8-bookworm")
# Of the last release.
RELEASE_TAG = "released"
STORES = {"postgres", "valkey"}
# As long as an edge without streams takes to leave.
STOP_S = "45"
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


def for_podman(workload: Resource, ports: Mapping[str, int], tag: str = TAG) -> Resource:
    """Publishes the workloads in `ports` there, and no others; our images get a tag that was built here."""
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
        _change_container(container, name, ports.get(name), tag)
    if changed["kind"] == "Job":
        # Of a release that had one.
        metadata = {"name": name, "labels": changed["metadata"]["labels"]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
    # A StatefulSet is to podman what a Deployment is.
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": changed["metadata"], "spec": changed["spec"]}


def _change_container(container: dict[str, Any], workload_name: str, port: int | None, tag: str) -> None:
    name = container["image"].rpartition(":")[0]
    if name in TARGETS.values():
        container["image"] = f"localhost/{name}:{tag}"
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


class Cluster:
    """The pods of one release, and then of the next."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self._folder = folder
        self._ports = ports
        self._pods: dict[str, Resource] = {}
        self._volumes: set[str] = set()
        home = folder / "secrets"
        home.mkdir()
        is_decoded = decodes_secrets()
        secrets = [for_podmans_store(secret, is_decoded=is_decoded) for secret in secrets_in(home)]
        self._secrets = {secret["metadata"]["name"]: secret for secret in secrets}

    def __enter__(self) -> "Cluster":
        run("podman", "network", "create", NETWORK)
        for name, secret in self._secrets.items():
            file = self._folder / f"{name}.json"
            file.write_text(json.dumps(secret))
            run("podman", "secret", "create", name, str(file))
        return self

    def __exit__(self, *failure: object) -> None:
        """Leaves nothing, whatever happened."""
        _remove("pod", "rm", "--force", "--time", "5", *map(name_in_podman, self._pods.values()))
        _remove("volume", "rm", "--force", *self._volumes, *self._secrets)
        _remove("secret", "rm", *self._secrets)
        _remove("network", "rm", "--force", NETWORK)

    def apply(self, resources: list[Resource], tag: str) -> None:
        """Has these run, with images of this tag, in place of what runs. The stores stay: their pods are the same."""
        config_maps = [resource for resource in resources if resource["kind"] == "ConfigMap"]
        old = [name_in_podman(pod) for name, pod in self._pods.items() if name not in STORES]
        if old:
            run("podman", "pod", "stop", "--time", STOP_S, *old)
            run("podman", "pod", "rm", "--force", *old)
            # What a store does not use.
            _remove("volume", "rm", *self._volumes)
        self._volumes |= {config_map["metadata"]["name"] for config_map in config_maps}
        kept = {name: pod for name, pod in self._pods.items() if name in STORES}
        pods = [for_podman(workload, self._ports, tag) for workload in workloads(resources)]
        tasks = [*filter(None, map(take_init_pod, pods)), *(pod for pod in pods if pod["kind"] == "Pod")]
        others = [pod for pod in pods if pod["kind"] != "Pod" and pod["metadata"]["name"] not in kept]
        self._pods = kept
        self._play(config_maps, [pod for pod in others if pod["metadata"]["name"] in STORES])
        self._play(config_maps, tasks)
        for task in tasks:
            for container in task["spec"]["containers"]:
                wait_for_end(f"{name_in_podman(task)}-{container['name']}")
        self._play(config_maps, [pod for pod in others if pod["metadata"]["name"] not in STORES])

    def _play(self, config_maps: list[Resource], pods: list[Resource]) -> None:
        if pods:
            self._pods |= {pod["metadata"]["name"]: pod for pod in pods}
            self._volumes |= {volume["name"] for pod in pods for volume in _pod_spec(pod)["volumes"]}
            manifest = self._folder / "legato.json"
            # JSON is YAML, too.
            manifest.write_text("\n---\n".join(json.dumps(resource) for resource in [*config_maps, *pods]))
            run("podman", "kube", "play", "--network", NETWORK, str(manifest))


def take_init_pod(pod: Resource) -> Resource | None:
    """Makes a pod of the init containers, which podman would start again when they have succeeded, and not when they
    have failed; a cluster does the opposite."""
    spec = copy.deepcopy(_pod_spec(pod))
    if "initContainers" not in spec:
        return None
    spec |= {"containers": spec.pop("initContainers"), "restartPolicy": "OnFailure"}
    del _pod_spec(pod)["initContainers"]
    metadata = {"name": f"{pod['metadata']['name']}-init", "labels": pod["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(pod: Resource) -> dict[str, Any]:
    spec: dict[str, Any] = pod["spec"] if pod["kind"] == "Pod" else pod_of(pod)
    return spec


def name_in_podman(pod: Resource) -> str:
    name: str = pod["metadata"]["name"]
    return name if pod["kind"] == "Pod" else pod_name(name)


def _remove(*arguments: str) -> None:
    # One after the other: what is not there does not keep the rest.
    subprocess.run(["podman", *arguments], capture_output=True, check=False)


def legato(*arguments: str) -> Any:
    """One of the owner's commands."""
    said = run("podman", "exec", f"{pod_name('admin')}-admin", "legato", *arguments, "--json")
    return json.loads(said.strip().splitlines()[-1])


def wait_for_end(container: str) -> None:
    end = time.monotonic() + WAIT_TIMEOUT_S
    state = "{{.State.Status}} {{.State.ExitCode}}"
    while run("podman", "inspect", "--format", state, container).strip() != "exited 0":
        assert time.monotonic() < end, run("podman", "logs", container)
        time.sleep(2)
    print(run("podman", "logs", container))


def wait_until_ready() -> None:
    """Until the edge has all its services: in a cluster no request would come before."""
    ask = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9090/readyz')"
    command = ["podman", "exec", f"{pod_name('edge')}-edge", "python", "-c", ask]
    end = time.monotonic() + WAIT_TIMEOUT_S
    while subprocess.run(command, capture_output=True, check=False).returncode:
        assert time.monotonic() < end, run("podman", "logs", f"{pod_name('edge')}-edge")
        time.sleep(2)
    print(run("podman", "pod", "ps", "--format", "{{.Name}} {{.Status}}"))


def main() -> None:
    build_images("podman", BASES, checkout(LAST), tag=RELEASE_TAG)
    build_images("podman", BASES)
    ports = {name: free_port() for name in PUBLISHED}
    base_url = f"http://127.0.0.1:{ports['edge']}/v1"
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder), ports) as cluster:
        released = checkout(LAST) / OVERLAY.relative_to(ROOT)
        cluster.apply(without_digests(build(released, may_warn=True)), RELEASE_TAG)
        wait_until_ready()
        visitor = Visitor(legato, base_url)
        visitor.chat()
        visitor.settle()
        cluster.apply(render(OVERLAY), TAG)
        wait_until_ready()
        visitor.check_upgrade()
        for name, host in CONSOLES.items():
            visit_console(f"http://127.0.0.1:{ports[name]}", host)
        print(run("podman", "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"))
    print("kube: all well")


if __name__ == "__main__":
    main()
