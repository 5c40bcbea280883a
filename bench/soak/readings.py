"""Reads the resources of each process: memory and descriptors from the kernel, the rest from its metrics."""

import re
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.e2e.operations import lines_of
from tests.support.service import Service
from tests.support.waiting import WAIT_TIMEOUT_S

SUPERVISOR: Final = "supervisor"

# Metrics that must return to their idle values.
METRICS: Final = {
    "tasks": "process_tasks",
    "chats": "legato_live_streams",
    "journal slots": "legato_journal_depth",
    "settlements": "legato_settlements_pending",
    "chats at models": "legato_upstream_running",
    "operations": "legato_operations_waiting",
}
CONNECTIONS: Final = "connections"
FILES: Final = "files"
THREADS: Final = "threads"

# Number of equal readings in a row that count as idle.
EQUAL_READINGS: Final = 3
LOOK_EVERY_S: Final = 0.3


class SoakHarness:
    """The processes of a service. They are looked up once, because their logs become long."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.process_ids = self._find_process_ids()
        self._operations = {
            name: line["listen"]
            for name in self.process_ids
            for line in lines_of(service, name.partition("-")[0])
            if line["event"] == "operations.started"
        }

    def is_the_same(self) -> bool:
        """Returns whether no process was restarted."""
        return self._find_process_ids() == self.process_ids

    def private_mib(self) -> dict[str, float]:
        """Reads each process's private memory."""
        return {name: _private_mib(process_id) for name, process_id in self.process_ids.items()}

    def resources(self) -> dict[str, dict[str, int]]:
        """Counts resources by process."""
        metrics = {name: self._read_metrics(name) for name in self.process_ids}
        return {name: metrics[name] | _opened_by(process_id) for name, process_id in self.process_ids.items()}

    def resources_at_rest(self) -> dict[str, dict[str, int]]:
        readings = [self.resources()]
        give_up_at_s = time.monotonic() + WAIT_TIMEOUT_S
        while len(readings) < EQUAL_READINGS or any(reading != readings[-1] for reading in readings[-EQUAL_READINGS:]):
            if time.monotonic() > give_up_at_s:
                raise AssertionError(f"the processes are not idle although no chat runs: {readings[-2]} {readings[-1]}")
            time.sleep(LOOK_EVERY_S)
            readings.append(self.resources())
        return readings[-1]

    def _find_process_ids(self) -> dict[str, int]:
        found = {name: state["pid"] for name, state in self._service.states().items()}
        return {**found, SUPERVISOR: self._service.supervisor_id}

    def _read_metrics(self, process: str) -> dict[str, int]:
        if process not in self._operations:
            return {}
        with urllib.request.urlopen(f"http://{self._operations[process]}/metrics", timeout=WAIT_TIMEOUT_S) as response:
            text = response.read().decode()
        return {
            name: sum(int(float(value)) for value in re.findall(rf"^{metric}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))
            for name, metric in METRICS.items()
            if f"\n{metric}" in text
        }


def wait_for_rest(
    harness: SoakHarness, is_enough: Callable[[Mapping[str, Mapping[str, int]]], bool]
) -> dict[str, dict[str, int]]:
    """Waits until `is_enough` holds for the readings, or until the timeout."""
    give_up_at_s = time.monotonic() + WAIT_TIMEOUT_S
    while not is_enough(found := harness.resources()) and time.monotonic() < give_up_at_s:
        time.sleep(LOOK_EVERY_S)
    return found


def _private_mib(process_id: int) -> float:
    kib = {
        fields[0]: int(fields[1])
        for line in Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()[1:]
        if (fields := line.split())
    }
    return (kib["Private_Clean:"] + kib["Private_Dirty:"]) / 1024


def _opened_by(process_id: int) -> dict[str, int]:
    targets = []
    for descriptor in Path(f"/proc/{process_id}/fd").iterdir():
        try:
            targets.append(str(descriptor.readlink()))
        except FileNotFoundError:
            # The descriptor was closed meanwhile.
            continue
    sockets = sum(target.startswith("socket:") for target in targets)
    threads = sum(1 for _ in Path(f"/proc/{process_id}/task").iterdir())
    return {CONNECTIONS: sockets, FILES: len(targets) - sockets, THREADS: threads}
