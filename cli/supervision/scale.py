"""The number of processes of each kind that `legato up` starts, by default from the number of processors."""

import os
from pathlib import Path
from typing import Final, NamedTuple

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")

# More are started only on request: each takes some 60 MB.
MOST_BY_DEFAULT: Final = 8
# A metering process has the work of about four edges.
EDGES_PER_METERING: Final = 4


class Scale(NamedTuple):
    edges: int = 1
    routers: int = 1
    meterings: int = 1

    def names_of(self, kind: str) -> list[str]:
        """Returns the names of the processes of a kind: numbered if there are several, and edges always."""
        count = {"edge": self.edges, "router": self.routers, "metering": self.meterings}.get(kind, 1)
        return [kind] if count == 1 and kind != "edge" else [f"{kind}-{number}" for number in range(1, count + 1)]


def default_scale(processors: float, *, has_postgresql: bool) -> Scale:
    """Returns an edge and a router for every two processors beyond the first, which is for the other processes: an edge
    and a router have about the same work. SQLite allows one metering process."""
    pairs = max(1, min(MOST_BY_DEFAULT, int(processors - 1) // 2))
    return Scale(pairs, pairs, -(-pairs // EDGES_PER_METERING) if has_postgresql else 1)


def count_processors(cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> float:
    """Returns the processors that this process may use, by its affinity and the CPU limit of its container."""
    return min(float(len(os.sched_getaffinity(0))), _cgroup_limit(cgroups, own_cgroup))


def _cgroup_limit(cgroups: Path, own_cgroup: Path) -> float:
    """Returns the least limit of the process's control group and those above it; infinite without any."""
    # Version 2 has one group, "0::/PATH". Inside a container the path is often "/", or one of the host's.
    paths = [line.split(":", 2)[2] for line in _read(own_cgroup).splitlines() if line.startswith("0::")]
    folders = {cgroups, cgroups / "cpu"}
    for path in paths:
        group = cgroups / path.strip("/")
        folders |= {group, *(parent for parent in group.parents if parent.is_relative_to(cgroups))}
    return min(min(_limit_v2(folder), _limit_v1(folder)) for folder in folders)


def _limit_v2(folder: Path) -> float:
    return _ratio(*(_read(folder / "cpu.max").split() or ["", ""])[:2])


def _limit_v1(folder: Path) -> float:
    return _ratio(_read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip())


def _ratio(quota: str, period: str = "") -> float:
    """Returns the processors that a quota allows; "max", -1 or nothing is no limit."""
    if quota.isdecimal() and period.isdecimal() and int(period):
        return int(quota) / int(period)
    return float("inf")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
