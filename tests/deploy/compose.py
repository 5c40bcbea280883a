"""`make compose-test`: starts the compose file of the last release, this one over it, and uses the service."""

import contextlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.deploy.engine import ROOT, build_images, find_engine, run
from tests.deploy.visit import (
    WAIT_TIMEOUT_S,
    Visitor,
    visit,
    visit_console,
    visit_while_a_service_is_away,
    wait_until_served,
)
from tests.support.releases import LAST, checkout

# Not the name that the file has: a service that runs on this machine keeps it.
PROJECT = "legato-test"
BASES = (
    "python:3.11-slim-bookworm",
    "postgres:17-bookworm",
    "valkey/valkey:8-bookworm",
    "haproxy:3.2",
    "prom/prometheus:v3.5.0",
)
SERVICES: dict[str, dict[str, Any]] = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
STOP_S = "45"
UP_ATTEMPTS = 3
BACKUPS = "/var/lib/legato/backups"
# As docs/containers.md says it.
ISSUE = """
legato certs issue caller/visitor --folder /secrets/authority &&
cp /secrets/authority/ca.pem /secrets/authority/caller-visitor.* /certs
"""
PROGRAM = """
import sys
from legato_protos.client import Certificates, LegatoClient
files = Certificates("/certs/ca.pem", "/certs/caller-visitor.pem", "/certs/caller-visitor.key")
with LegatoClient("edge:7000", api_key=sys.argv[1], certificates=files) as client:
    answer = client.complete("Say hello in one short sentence.", model="mezzo", max_tokens=24)
    assert answer.usage.cost_nanos > 0
    print(answer.model, answer.usage.cost_nanos, answer.message.text)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Stack:
    """The compose file of today or of a release, under a name and a port of its own."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._files = ROOT
        self._tool = ["docker", "compose"] if engine == "docker" else [str(ROOT / ".venv" / "bin" / "podman-compose")]
        self._between_names = "-" if engine == "docker" else "_"
        port, console_port = free_port(), free_port()
        os.environ |= {
            "LEGATO_PORT": str(port),
            "LEGATO_CONSOLE_PUBLISHED": str(console_port),
            "LEGATO_OPERATOR_CONSOLE_PUBLISHED": str(free_port()),
            "COMPOSE_PROFILES": "local-model",
        }
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.console_url = f"http://127.0.0.1:{console_port}"

    def compose(self, *arguments: str) -> str:
        file = str(self._files / "docker-compose.yml")
        return run(*self._tool, "--file", file, "--project-name", PROJECT, *arguments)

    def start(self, files: Path) -> None:
        """Builds the images from these files, and replaces what runs by them."""
        self._files = files
        build_images(self._engine, BASES, files)
        if self._engine == "podman":
            # podman-compose does not notice that a name is that of another image now.
            self.compose("down")
        self._up()
        wait_until_served(self.base_url)

    def _up(self) -> None:
        """Repeats what podman refuses: it starts no container while one that it depends on is between two starts."""
        for _ in range(UP_ATTEMPTS - 1):
            with contextlib.suppress(SystemExit):
                self.compose("up", "--detach")
                return
        self.compose("up", "--detach")

    def legato(self, *arguments: str, service: str = "legato") -> Any:
        """One of the owner's commands."""
        said = self.compose("--profile", "commands", "run", "--rm", "-T", service, *arguments, "--json")
        return json.loads(said.strip().splitlines()[-1])

    def container(self, command: str, service: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """Asks the second of two edges, as the first is stopped on the way."""
        number = "2" if service == "edge" and command == "exec" else "1"
        name = self._between_names.join((PROJECT, service, number))
        return run(self._engine, command, *options, name, *arguments)

    def stop(self, service: str) -> None:
        self.container("stop", service, options=("--time", STOP_S))

    def remove(self) -> None:
        self.compose("--profile", "commands", "--profile", "observability", "down", "--volumes")


def greeted(stack: Stack) -> str:
    while "To make a key" not in (hello := stack.container("logs", "hello")):
        time.sleep(1)
    return hello


def use(stack: Stack, key: str) -> None:
    """Chats before and after an edge has left, while metering is away, and when it is back."""
    visit_as_program(stack, key)
    stack.stop("edge")
    visit(stack.base_url, key)
    stack.stop("metering")
    # Longer than the balancer needs to find that no edge is ready.
    time.sleep(10)
    visit_while_a_service_is_away(stack.base_url, key)
    stack.container("start", "metering")
    visit(stack.base_url, key)
    print("audit:", stack.legato("audit"))
    print("backup:", stack.legato("backup", BACKUPS, service="backup"))
    assert stack.legato("restore", BACKUPS, service="backup")["violations"] == []


def visit_as_program(stack: Stack, key: str) -> None:
    """Calls by gRPC from a container of the network, with a certificate of its own."""
    with tempfile.TemporaryDirectory() as certs:
        mount = f"{certs}:/certs"
        stack.compose("run", "--rm", "-T", "-v", mount, "secrets", "sh", "-c", ISSUE)
        client = ["run", "--rm", "-T", "--no-deps", "-u", "0:0", "-v", mount, "--entrypoint", "python", "legato"]
        print("program:", stack.compose("--profile", "commands", *client, "-c", PROGRAM, key))


def look_inside(stack: Stack) -> None:
    for service in ("edge", "auth", "router", "metering"):
        assert stack.container("exec", service, "id", "-u").strip() == "10001"
    for service, described in SERVICES.items():
        # podman asks by itself only under systemd.
        if "healthcheck" in described and set(described.get("profiles", [])) <= {"local-model"}:
            stack.container("exec", service, *described["healthcheck"]["test"][1:])


def wait_for_metrics(stack: Stack) -> None:
    """Until Prometheus has read the metrics of every process."""
    stack.compose("--profile", "observability", "up", "--detach", "--no-deps", "prometheus")
    question = "http://127.0.0.1:9090/api/v1/query?query=up==1"
    end = time.monotonic() + WAIT_TIMEOUT_S
    jobs: set[str] = set()
    while jobs != {"edge", "auth", "router", "metering"}:
        assert time.monotonic() < end, f"Prometheus sees {jobs}"
        time.sleep(5)
        # It does not answer before it has read its files.
        with contextlib.suppress(SystemExit):
            answer = json.loads(stack.container("exec", "prometheus", "wget", "-q", "-O", "-", question))
            jobs = {series["metric"]["job"] for series in answer["data"]["result"]}
    print("Prometheus sees", ", ".join(sorted(jobs)))


def main() -> None:
    engine = find_engine()
    stack = Stack(engine)
    stack.remove()
    try:
        stack.start(checkout(LAST))
        print(greeted(stack))
        visitor = Visitor(stack.legato, stack.base_url)
        visitor.chat()
        visitor.settle()
        stack.start(ROOT)
        visitor.check_upgrade()
        use(stack, visitor.key)
        visit_console(stack.console_url, "localhost:8081")
        look_inside(stack)
        wait_for_metrics(stack)
        print(run(engine, "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}"))
    finally:
        stack.remove()
    print("compose: all well")


if __name__ == "__main__":
    main()
