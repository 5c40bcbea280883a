"""`make compose-test`: builds the images, starts the compose file as it is, and uses the service like anybody would."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.deploy.engine import ROOT, build_images, find_engine, run
from tests.deploy.visit import PATIENCE_S, visit, visit_while_a_service_is_away, wait_until_served

# Not the name that the file has: whoever runs the service on this machine keeps it.
PROJECT = "legato-test"
BASES = (
    "docker.io/library/python:3.11-slim-bookworm",
    "docker.io/library/postgres:17-bookworm",
    "docker.io/valkey/valkey:8-bookworm",
    "docker.io/library/haproxy:3.2",
    "docker.io/prom/prometheus:v3.5.0",
)
SERVICES: dict[str, dict[str, Any]] = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
STOP_S = "45"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def make_key(legato: Callable[..., Any]) -> str:
    account = legato("accounts", "create", "visitor", "--credits", "5.00")["account_id"]
    key: str = legato("keys", "create", "--account", account)["api_key"]
    return key


def wait_for_metrics(read: Callable[[str], str]) -> None:
    """Until Prometheus has read the metrics of every process."""
    end = time.monotonic() + PATIENCE_S
    jobs: set[str] = set()
    while jobs != {"edge", "auth", "router", "metering"}:
        assert time.monotonic() < end, f"Prometheus sees {jobs}"
        time.sleep(5)
        with contextlib.suppress(SystemExit):
            answer = json.loads(read("http://127.0.0.1:9090/api/v1/query?query=up==1"))
            jobs = {series["metric"]["job"] for series in answer["data"]["result"]}


def main() -> None:
    engine = find_engine()
    tool = ["docker", "compose"] if engine == "docker" else [str(Path(ROOT / ".venv" / "bin" / "podman-compose"))]
    port = free_port()
    os.environ |= {"LEGATO_PORT": str(port), "COMPOSE_PROFILES": "local-model"}
    base_url = f"http://127.0.0.1:{port}/v1"

    def compose(*arguments: str) -> str:
        return run(*tool, "--project-name", PROJECT, *arguments)

    def legato(*arguments: str) -> Any:
        """One of the owner's commands."""
        said = compose("--profile", "commands", "run", "--rm", "-T", "legato", *arguments, "--json")
        return json.loads(said.strip().splitlines()[-1])

    def container(service: str, number: int = 1) -> str:
        return f"{PROJECT}{'-' if engine == 'docker' else '_'}{service}{'-' if engine == 'docker' else '_'}{number}"

    build_images(engine, BASES)
    compose("down", "--volumes")
    try:
        compose("up", "--detach")
        wait_until_served(base_url)
        print(run(engine, "logs", container("hello")))
        key = make_key(legato)
        visit(base_url, key)
        # One of two edges leaves; the other serves.
        run(engine, "stop", "--time", STOP_S, container("edge"))
        visit(base_url, key)
        run(engine, "stop", "--time", STOP_S, container("metering"))
        # Longer than the balancer needs to find that no edge is ready.
        time.sleep(10)
        visit_while_a_service_is_away(base_url, key)
        run(engine, "start", container("metering"))
        visit(base_url, key)
        print("audit:", legato("audit"))
        for service in ("edge", "auth", "router", "metering"):
            number = 2 if service == "edge" else 1
            assert run(engine, "exec", container(service, number), "id", "-u").strip() == "10001"
        # podman asks by itself only under systemd.
        for service, described in SERVICES.items():
            if "healthcheck" in described and set(described.get("profiles", [])) <= {"local-model"}:
                number = 2 if service == "edge" else 1
                run(engine, "exec", container(service, number), *described["healthcheck"]["test"][1:])
        compose("--profile", "observability", "up", "--detach", "--no-deps", "prometheus")
        wait_for_metrics(lambda url: run(engine, "exec", container("prometheus"), "wget", "-q", "-O", "-", url))
        print(run(engine, "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"))
    finally:
        compose("down", "--volumes")
    print("compose: all well")


if __name__ == "__main__":
    main()
