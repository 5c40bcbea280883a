"""Reads the CPU time and memory of processes and of the whole machine from /proc (Linux only)."""

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class _Process(NamedTuple):
    parent_id: int
    # Includes that of children that have ended.
    cpu_s: float
    resident_bytes: int


class Spent(msgspec.Struct, frozen=True):
    """CPU time used while a `Watch` ran."""

    cpu_s: dict[str, float]
    # Share of the machine's CPU time used by processes outside the measurement, including the kernel and other virtual
    # machines.
    others_share: float


class Watch:
    """Measures CPU time from its creation."""

    def __init__(self, groups: Mapping[str, int], family: int) -> None:
        """Takes groups of processes: each is a process with its descendants, except those that are groups themselves.
        CPU time outside `family`, the process that started all of them, counts as used by others."""
        self._groups = groups
        self._family = family
        self._before = self._look()

    def spent(self) -> Spent:
        after = self._look()
        busy_s, total_s, family_s = (after[name] - self._before[name] for name in ("busy", "total", "family"))
        others_share = max(0.0, busy_s - family_s) / total_s if total_s else 0.0
        return Spent({name: after[f"of {name}"] - self._before[f"of {name}"] for name in self._groups}, others_share)

    def _look(self) -> dict[str, float]:
        processes = dict(_processes())
        busy_s, total_s = _machine()
        groups = {f"of {name}": sum(one.cpu_s for one in group) for name, group in _groups(self._groups, processes)}
        family_s = sum(one.cpu_s for one in _tree(self._family, processes))
        return groups | {"family": family_s, "busy": busy_s, "total": total_s}


def resident_mib(groups: Mapping[str, int]) -> dict[str, float]:
    """Returns each group's memory. Shared pages are counted for each process."""
    members = _groups(groups, dict(_processes()))
    return {name: sum(one.resident_bytes for one in group) / 2**20 for name, group in members}


def calibrate() -> float:
    """Returns the CPU milliseconds of a fixed piece of work. If they grow, other processes compete for the caches or
    the host has taken CPU time away, and all other figures have grown too."""
    took_s = []
    for _ in range(5):
        began_at_s = time.process_time()
        sum(number * number for number in range(100_000))
        took_s.append(time.process_time() - began_at_s)
    return 1000 * sorted(took_s)[2]


def _groups(groups: Mapping[str, int], processes: Mapping[int, _Process]) -> Iterator[tuple[str, Iterator[_Process]]]:
    for name, process_id in groups.items():
        yield name, _tree(process_id, processes, apart_from=set(groups.values()) - {process_id})


def _tree(process_id: int, processes: Mapping[int, _Process], apart_from: Collection[int] = ()) -> Iterator[_Process]:
    if process_id in processes:
        yield processes[process_id]
    for child, process in processes.items():
        if process.parent_id == process_id and child not in apart_from:
            yield from _tree(child, processes, apart_from)


def _processes() -> Iterable[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # The process has ended.
            continue
        # The second field is the program's name, in brackets, and may contain any character.
        fields = stat.rpartition(")")[2].split()
        yield (
            int(folder.name),
            _Process(int(fields[1]), sum(map(int, fields[11:15])) * _TICK_S, int(fields[21]) * _PAGE_BYTES),
        )


def _machine() -> tuple[float, float]:
    """Returns the busy and the total seconds of all CPUs."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, *others = (int(field) * _TICK_S for field in fields)
    busy_s = user + nice + system + sum(others)
    return busy_s, busy_s + idle + waiting
