import os
from pathlib import Path

import pytest

from cli.supervision.scale import Scale, count_processors, default_scale


@pytest.mark.parametrize(
    ("processors", "pairs"), [(0.5, 1), (1, 1), (2, 1), (4, 1), (5, 2), (8, 3), (16, 7), (17.5, 8), (128, 8)]
)
def test_a_larger_machine_has_more_edges_and_routers(processors: float, pairs: int) -> None:
    assert default_scale(processors, has_postgresql=False) == Scale(pairs, pairs, 1)


def test_only_postgresql_has_several_metering_processes() -> None:
    assert [default_scale(count, has_postgresql=True).meterings for count in (2, 8, 16)] == [1, 1, 2]


def limited(folder: Path, files: dict[str, str], own: str = "0::/\n") -> float:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "own").write_text(own)
    return count_processors(folder, folder / "own")


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({"cpu.max": "50000 100000\n"}, "0::/\n"),
        ({"a/cpu.max": "50000 100000\n", "a/b/cpu.max": "max 100000\n"}, "0::/a/b\n"),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "3:cpu:/x\n"),
    ],
    ids=["of a container", "of a group above", "of version 1"],
)
def test_a_cpu_limit_counts(files: dict[str, str], own: str, tmp_path: Path) -> None:
    assert limited(tmp_path, files, own) == 0.5


@pytest.mark.parametrize(
    "files",
    [{}, {"cpu.max": "max 100000\n"}, {"cpu.max": ""}, {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "1"}],
)
def test_without_a_limit_the_affinity_counts(files: dict[str, str], tmp_path: Path) -> None:
    assert limited(tmp_path, files) == len(os.sched_getaffinity(0))
