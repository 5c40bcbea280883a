"""Rules that all our manifests keep to, as far as a schema cannot say them. A policy gives the breaches it finds."""

from collections.abc import Iterator
from typing import Any

from services.rules.residency import CANADIAN_REGIONS
from tests.deploy.kubernetes.kustomize import Resource

WORKLOADS = ("Deployment", "StatefulSet", "Job", "CronJob")
REGION_LABEL = "topology.kubernetes.io/region"
REGION_ANNOTATION = "legato/region"
# A process that has the first has a store, whose region is the second.
STORES = {
    "LEGATO_AUDIT_COPY": "LEGATO_AUDIT_COPY_REGION",
    "LEGATO_DATABASE_URL_FILE": "LEGATO_DATABASE_REGION",
    "LEGATO_VALKEY_URL_FILE": "LEGATO_VALKEY_REGION",
    "LEGATO_JOURNALS": "LEGATO_DATA_REGION",
}
STORE_IMAGES = ("postgres", "valkey")


def workloads(resources: list[Resource]) -> list[Resource]:
    return [resource for resource in resources if resource["kind"] in WORKLOADS]


def name_of(resource: Resource) -> str:
    return f"{resource['kind']}/{resource['metadata']['name']}"


def template_of(workload: Resource) -> dict[str, Any]:
    """Returns the template of its pods."""
    template: dict[str, Any] = workload["spec"].get("jobTemplate", workload)["spec"]["template"]
    return template


def pod_of(workload: Resource) -> dict[str, Any]:
    pod: dict[str, Any] = template_of(workload)["spec"]
    return pod


def all_containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def containers(resources: list[Resource]) -> Iterator[tuple[str, Resource, dict[str, Any]]]:
    """Yields init containers, too."""
    for workload in workloads(resources):
        for container in all_containers(pod_of(workload)):
            yield f"{name_of(workload)}/{container['name']}", workload, container


def environment(container: dict[str, Any], resources: list[Resource]) -> dict[str, str]:
    """The process's environment, except what comes from a Secret."""
    config_maps = {
        resource["metadata"]["name"]: resource["data"] for resource in resources if resource["kind"] == "ConfigMap"
    }
    given: dict[str, str] = {}
    for source in container.get("envFrom", []):
        if "configMapRef" in source:
            given |= config_maps[source["configMapRef"]["name"]]
    for entry in container.get("env", []):
        key = entry.get("valueFrom", {}).get("configMapKeyRef")
        # A key that is optional may be absent: then the variable is not set.
        if key is not None and (key["key"] in config_maps[key["name"]] or not key.get("optional")):
            given[entry["name"]] = config_maps[key["name"]][key["key"]]
    return given | {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}


def abroad(resources: list[Resource], *, on_one_machine: bool) -> list[str]:
    """Stores of account data or counters that say nothing of where they are, or that are outside Canada."""
    allowed = CANADIAN_REGIONS | ({"local"} if on_one_machine else set())
    breaches = []
    for name, workload, container in containers(resources):
        environ = environment(container, resources)
        declared = [(environ.get(region), region) for store, region in STORES.items() if store in environ]
        image = container["image"].rpartition(":")[0].rpartition("/")[2]
        if "volumeClaimTemplates" in workload["spec"] or image in STORE_IMAGES:
            declared.append((workload["metadata"].get("annotations", {}).get(REGION_ANNOTATION), REGION_ANNOTATION))
        breaches += [f"{name}: {where} is {region}" for region, where in declared if region not in allowed]
        if declared and not on_one_machine and not _node_regions(workload) <= CANADIAN_REGIONS:
            breaches.append(f"{name}: may run outside Canada")
    return breaches


def _node_regions(workload: Resource) -> set[str]:
    """Regions the scheduler may choose; "anywhere" if nothing keeps it."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod_of(workload).get("affinity", {}).get("nodeAffinity", {}).get(required, {"nodeSelectorTerms": []})
    regions: set[str] = set()
    for term in affinity["nodeSelectorTerms"]:
        named = [
            rule["values"]
            for rule in term["matchExpressions"]
            if rule["key"] == REGION_LABEL and rule["operator"] == "In"
        ]
        regions |= set(named[0]) if named else {"anywhere"}
    return regions or {"anywhere"}


def not_restricted(resources: list[Resource]) -> list[str]:
    """Finds what Pod Security's "restricted" would refuse, and root file systems that can be written."""
    breaches = []
    for name, workload, container in containers(resources):
        pod = pod_of(workload)
        in_pod, in_container = pod.get("securityContext", {}), container.get("securityContext", {})
        wanted = {
            "runs as root": in_pod.get("runAsNonRoot") is True and in_pod.get("runAsUser", 0) != 0,
            "has no seccomp profile": in_pod.get("seccompProfile") == {"type": "RuntimeDefault"},
            "may gain privileges": in_container.get("allowPrivilegeEscalation") is False,
            "keeps capabilities": in_container.get("capabilities") == {"drop": ["ALL"]},
            "writes to its image": in_container.get("readOnlyRootFilesystem") is True,
            "shares the node": not {"hostNetwork", "hostPID", "hostIPC"} & set(pod),
            "mounts the node": all("hostPath" not in volume for volume in pod.get("volumes", [])),
            "talks to the cluster": pod.get("automountServiceAccountToken") is False,
        }
        breaches += [f"{name}: {what}" for what, holds in wanted.items() if not holds]
    return breaches


def careless(resources: list[Resource]) -> list[str]:
    """Images without a version, containers without limits, and services without a health check."""
    breaches = []
    for name, workload, container in containers(resources):
        _, colon, tag = container["image"].rpartition(":")
        if not colon or tag == "latest":
            breaches.append(f"{name}: its image has no version")
        reserved, limited = (container.get("resources", {}).get(kind, {}) for kind in ("requests", "limits"))
        if not {"cpu", "memory"} <= set(reserved) or "memory" not in limited:
            breaches.append(f"{name}: no requests, or no limit of memory")
        if container.get("ports") and "readinessProbe" not in container:
            breaches.append(f"{name}: it has no health check")
        breaches += [
            f"{name}: the volume {volume['name']} has no limit"
            for volume in pod_of(workload).get("volumes", [])
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]
        ]
    return breaches
