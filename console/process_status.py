"""Reads what each process tells about itself: readiness, version and metrics, from its operations port."""

import asyncio
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import WholeResponse, fetch_once
from services.chassis.http_client.origin import Origin
from services.chassis.rpc.replicas import resolve
from services.chassis.settings import SettingsError

UNIX: Final = "unix:"
# A page waits no longer for a process that does not answer.
READ_WITHIN_S: Final = 0.8
LARGEST_ANSWER_BYTES: Final = 4 * 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9-]{1,40}")


class ProcessAddress(NamedTuple):
    """The address at which processes of a name serve health and metrics; a host name may stand for many of them."""

    name: str
    address: str


class Metrics:
    """The metrics of a process, of which a page needs few: those that are asked for are parsed."""

    def __init__(self, text: str = "") -> None:
        self._lines: dict[str, list[str]] = {}
        self._samples: dict[str, list[Sample]] = {}
        for line in text.splitlines():
            self._lines.setdefault(line.partition(" ")[0].partition("{")[0], []).append(line)

    def find(self, name: str) -> list[Sample]:
        """Returns the samples of a metric; none of one that cannot be read."""
        found = self._samples.get(name)
        if found is None:
            text = "\n".join([*self._lines.get(name, ()), ""])
            with contextlib.suppress(ValueError):
                found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
            found = self._samples[name] = found or []
        return found


@dataclass(frozen=True, slots=True)
class ProcessState:
    name: str
    address: str
    # Does it answer at all? Nothing else is known of one that does not.
    answers: bool = False
    # What it waits for, in its own words; empty: it is ready.
    missing: str = ""
    version: str = ""
    metrics: Metrics = field(default_factory=Metrics, repr=False)

    @property
    def kind(self) -> str:
        """The program that it runs: `edge` of `edge-2`."""
        return self.name.partition("-")[0]

    def total(self, name: str, **labels: str) -> float | None:
        """Returns the sum of a metric's samples with these labels; None if there are none."""
        found = [sample.value for sample in self.find(name, **labels)]
        return sum(found) if found else None

    def find(self, name: str, **labels: str) -> Iterator[Sample]:
        for sample in self.metrics.find(name):
            if labels.items() <= sample.labels.items():
                yield sample


def parse_addresses(given: str) -> list[ProcessAddress]:
    """Parses the setting; raises a SettingsError."""
    parsed = []
    for entry in filter(None, (entry.strip() for entry in given.split(","))):
        name, _, address = entry.partition("=")
        host, _, port = address.rpartition(":")
        is_address = address.startswith(f"{UNIX}/") or (host and port.isdecimal() and 0 < int(port) < 65_536)
        if not _NAME.fullmatch(name) or not is_address:
            raise SettingsError(
                "LEGATO_CONSOLE_STATUS_ADDRESSES: must be NAME=HOST:PORT or NAME=unix:PATH, separated by commas"
            )
        parsed.append(ProcessAddress(name, address))
    return parsed


async def read_processes(addresses: Sequence[ProcessAddress]) -> list[ProcessState]:
    """Reads all of them at once. One that does not answer in time is listed as such, never left out."""
    resolved = [one for found in await asyncio.gather(*map(_resolve, addresses)) for one in found]
    return list(await asyncio.gather(*map(_read, resolved)))


def quantile(states: Sequence[ProcessState], name: str, share: float) -> float | None:
    """Returns the upper bound of the bucket below which this share of a histogram's observations lies, over all labels
    and processes; None if there are none."""
    counts: dict[float, float] = {}
    for state in states:
        for sample in state.find(f"{name}_bucket"):
            bound = float(sample.labels["le"])
            counts[bound] = counts.get(bound, 0) + sample.value
    total = counts.get(math.inf, 0)
    return next((bound for bound, count in sorted(counts.items()) if total and count >= share * total), None)


async def _resolve(given: ProcessAddress) -> list[ProcessAddress]:
    """Returns each address of a host name; the name itself if there is none."""
    try:
        async with asyncio.timeout(READ_WITHIN_S):
            return [given._replace(address=each) for each in sorted(await resolve(given.address))]
    except (OSError, TimeoutError):
        return [given]


async def _read(given: ProcessAddress) -> ProcessState:
    try:
        ready, metrics = await asyncio.gather(_get(given.address, "/readyz"), _get(given.address, "/metrics"))
    except (Interrupted, UnicodeDecodeError):
        return ProcessState(given.name, given.address)
    if not metrics.is_whole:
        return ProcessState(given.name, given.address)
    return ProcessState(
        given.name,
        given.address,
        answers=True,
        missing="" if ready.status == 200 else ready.body.decode().strip().removeprefix("not ready: "),
        version=ready.header(b"server").partition("legato/")[2],
        metrics=Metrics(metrics.body.decode()),
    )


async def _get(address: str, path: str) -> WholeResponse:
    if address.startswith(UNIX):
        origin = Origin("localhost", 80, socket=Path(address.removeprefix(UNIX)))
    else:
        host, _, port = address.rpartition(":")
        origin = Origin(host.strip("[]"), int(port))
    return await fetch_once(origin, path, {}, timeout_s=READ_WITHIN_S, most_bytes=LARGEST_ANSWER_BYTES)
