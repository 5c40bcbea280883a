"""Asks the processes of a service as those do who look after them."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.service import Service
from tests.support.waiting import WAIT_TIMEOUT_S

PROCESSES = ("edge", "auth", "router", "metering")

# Each on a port that is free; they say in their logs on which.
LISTENING = {
    "LEGATO_EDGE_OPERATIONS_LISTEN": "127.0.0.1:0",
    "LEGATO_AUTH_METRICS_LISTEN": "127.0.0.1:0",
    "LEGATO_ROUTER_METRICS_LISTEN": "127.0.0.1:0",
    "LEGATO_METERING_METRICS_LISTEN": "127.0.0.1:0",
}


@dataclass(frozen=True)
class Page:
    status: int
    text: str


def look_at(service: Service, process: str, path: str, accept: str = "*/*") -> Page:
    asked = urllib.request.Request(f"http://{_address_of(service, process)}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(asked, timeout=WAIT_TIMEOUT_S) as response:
            return Page(response.status, response.read().decode())
    except urllib.error.HTTPError as error:
        return Page(error.code, error.read().decode())


def metrics_of(service: Service, process: str) -> dict[str, Metric]:
    return {family.name: family for family in families_in(look_at(service, process, "/metrics").text)}


def families_in(text: str) -> list[Metric]:
    """Parses like Prometheus."""
    return list(text_string_to_metric_families(text))


def openmetrics_of(service: Service, process: str) -> list[Metric]:
    """Asks like a Prometheus that keeps exemplars."""
    text = look_at(service, process, "/metrics", "application/openmetrics-text;version=1.0.0").text
    return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def value_of(service: Service, process: str, name: str, /, **labels: str) -> float:
    """Zero, if it was never counted."""
    for family in metrics_of(service, process).values():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


def lines_of(service: Service, process: str) -> list[dict[str, Any]]:
    """Reads its logs."""
    lines = []
    for path in sorted((service.data / "logs").glob("*")):
        # The last may be half written, and a kill or a full disk may have cut another. None runs into the next.
        *ended, _ = path.read_text(errors="replace").split("\n")
        lines += [json.loads(line) for line in ended if line.startswith("{") and line.endswith("}")]
    return [line for line in lines if line["service"] == process]


def _address_of(service: Service, process: str) -> str:
    started = [line for line in lines_of(service, process) if line["event"] == "operations.started"]
    return str(started[-1]["listen"])
