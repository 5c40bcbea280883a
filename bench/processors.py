"""What processes, and the machine as a whole, have taken of the processors. From /proc, so Linux only."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class _Process(NamedTuple):
    parent_id: int
    # Its own, and that of its children that have ended.
    cpu_s: float


class Spent(msgspec.Struct, frozen=True):
    """What was taken of the processors while somebody looked."""

    cpu_s: dict[str, float]
    # How much of all processors went to processes that are not ours: to the kernel's own, to other machines as well.
    others_share: float


class Watch:
    """Looks from when it is made."""

    def __init__(self, groups: Mapping[str, int], family: int) -> None:
        """Each group is a process with all that it started. `family` is the process that started them all: what no
        member of the family took, others did."""
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
        groups = {f"of {name}": _cpu_s(process_id, processes) for name, process_id in self._groups.items()}
        return groups | {"family": _cpu_s(self._family, processes), "busy": busy_s, "total": total_s}


def _cpu_s(process_id: int, processes: Mapping[int, _Process]) -> float:
    children = (child for child, process in processes.items() if process.parent_id == process_id)
    own_s = processes[process_id].cpu_s if process_id in processes else 0.0
    return own_s + sum(_cpu_s(child, processes) for child in children)


def _processes() -> Iterable[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            stat = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # It has ended since.
            continue
        # The second field is the program's name, in brackets, and may hold anything.
        fields = stat.rpartition(")")[2].split()
        yield int(folder.name), _Process(int(fields[1]), sum(map(int, fields[11:15])) * _TICK_S)


def _machine() -> tuple[float, float]:
    """Seconds of all processors together: busy, and passed."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, idle, waiting, *others = (int(field) * _TICK_S for field in fields)
    busy_s = user + nice + system + sum(others)
    return busy_s, busy_s + idle + waiting
