"""Finds references of resources to others that do not exist, or that have not what is referred to."""

from collections.abc import Iterator
from itertools import chain

from tests.deploy.kubernetes.kustomize import Resource
from tests.deploy.kubernetes.network import pods, selectors_in
from tests.deploy.kubernetes.policies import all_containers, name_of, pod_of, template_of, workloads


def container_ports(workload: Resource) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for container in all_containers(pod_of(workload))
        for port in container.get("ports", [])
    }


def service_ports(resources: list[Resource]) -> dict[tuple[str, int | str], set[tuple[str, int]]]:
    """Returns the workloads, and their ports, behind each port of a Service, by its number and by its name."""
    found: dict[tuple[str, int | str], set[tuple[str, int]]] = {}
    for service in resources:
        for entry in service["spec"]["ports"] if service["kind"] == "Service" else []:
            behind = {
                (workload["metadata"]["name"], container_ports(workload)[entry["targetPort"]])
                for workload in workloads(resources)
                if service["spec"]["selector"].items() <= template_of(workload)["metadata"]["labels"].items()
                and entry["targetPort"] in container_ports(workload)
            }
            name = service["metadata"]["name"]
            found[name, entry["port"]] = found[name, entry["name"]] = behind
    return found


def broken_references(resources: list[Resource]) -> list[str]:
    names = {name_of(resource) for resource in resources}
    wanted = chain(_wanted_by_pods(resources), _wanted_by_others(resources))
    missing = [f"{who} refers to {what}" for who, what in wanted if what not in names]
    return [
        *missing,
        *_missing_keys(resources),
        *_unused_volumes(resources),
        *_missing_ports(resources),
        *_lost(resources),
    ]


def secrets_of(resources: list[Resource]) -> set[str]:
    """Returns the names of the Secrets that pods refer to, optional ones too."""
    named: set[str] = set()
    for workload in workloads(resources):
        named |= {volume["secret"]["secretName"] for volume in pod_of(workload)["volumes"] if "secret" in volume}
        for container in all_containers(pod_of(workload)):
            sources = [entry.get("valueFrom", {}) for entry in container.get("env", [])]
            named |= {source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source}
            named |= {source["secretRef"]["name"] for source in container.get("envFrom", []) if "secretRef" in source}
    return named


def _wanted_by_pods(resources: list[Resource]) -> Iterator[tuple[str, str]]:
    for workload in workloads(resources):
        pod, who = pod_of(workload), name_of(workload)
        yield who, f"ServiceAccount/{pod['serviceAccountName']}"
        for volume in pod["volumes"]:
            if "configMap" in volume:
                yield who, f"ConfigMap/{volume['configMap']['name']}"
        for container in all_containers(pod_of(workload)):
            for source in container.get("envFrom", []):
                if "configMapRef" in source:
                    yield who, f"ConfigMap/{source['configMapRef']['name']}"


def _wanted_by_others(resources: list[Resource]) -> Iterator[tuple[str, str]]:
    for resource in resources:
        spec, who = resource.get("spec", {}), name_of(resource)
        if "scaleTargetRef" in spec:
            yield who, f"Deployment/{spec['scaleTargetRef']['name']}"
        if "issuerRef" in spec:
            yield who, f"{spec['issuerRef']['kind']}/{spec['issuerRef']['name']}"


def _missing_keys(resources: list[Resource]) -> Iterator[str]:
    data = {resource["metadata"]["name"]: resource["data"] for resource in resources if resource["kind"] == "ConfigMap"}
    for workload in workloads(resources):
        for container in all_containers(pod_of(workload)):
            for entry in container.get("env", []):
                key = entry.get("valueFrom", {}).get("configMapKeyRef")
                if key is not None and not key.get("optional") and key["key"] not in data.get(key["name"], {}):
                    yield f"{name_of(workload)}: {key['name']} has no {key['key']}"


def _unused_volumes(resources: list[Resource]) -> Iterator[str]:
    for workload in workloads(resources):
        mounted = {
            mount["name"] for container in all_containers(pod_of(workload)) for mount in container["volumeMounts"]
        }
        claimed = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        declared = {volume["name"] for volume in pod_of(workload)["volumes"]} | claimed
        yield from (f"{name_of(workload)}: the volume {name}" for name in mounted ^ declared)


def _missing_ports(resources: list[Resource]) -> Iterator[str]:
    ports = service_ports(resources)
    yield from (
        f"Service/{name}: nothing is behind port {port}" for (name, port), behind in ports.items() if not behind
    )
    for resource in resources:
        for name, port in _backends(resource):
            if (name, port) not in ports:
                yield f"{name_of(resource)}: no port {port} of Service/{name}"
    for workload in workloads(resources):
        known: set[int | str] = {*container_ports(workload), *container_ports(workload).values()}
        yield from (f"{name_of(workload)}: {probe}" for probe, probed in _probed_ports(workload) if probed not in known)


def _probed_ports(workload: Resource) -> Iterator[tuple[str, int | str]]:
    for container in all_containers(pod_of(workload)):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            for action in ("grpc", "httpGet", "tcpSocket"):
                if action in container.get(probe, {}):
                    yield probe, container[probe][action]["port"]


def _backends(resource: Resource) -> Iterator[tuple[str, int | str]]:
    if resource["kind"] == "HTTPRoute":
        for rule in resource["spec"]["rules"]:
            yield from ((backend["name"], backend["port"]) for backend in rule["backendRefs"])
    if resource["kind"] == "Ingress":
        for rule in resource["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                service = path["backend"]["service"]
                yield service["name"], service["port"]["name"]


def _lost(resources: list[Resource]) -> Iterator[str]:
    """Finds selectors that select no pod."""
    labels = [pod.labels for pod in pods(resources).values()]
    for resource in resources:
        for selected in selectors_in(resource.get("spec", {})):
            if not any(selected.items() <= given.items() for given in labels):
                yield f"{name_of(resource)} selects no pod by {selected}"
