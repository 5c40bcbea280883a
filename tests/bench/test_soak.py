"""The short form of `make soak`, and how it judges. Memory needs more time than a test has."""

from pathlib import Path

import msgspec
import pytest

from bench.report import Progress
from bench.soak.campaign import Campaign
from bench.soak.clients import Outcome
from bench.soak.judgement import LAZY, SHORTEST_JUDGED_S, Sample, Soak, filtered, slope, table
from bench.soak.kinds import KINDS
from bench.soak.readings import CONNECTIONS, FILES
from tests.support.service import Service


def soak_of(
    grows_mib_per_h: float = 0.0, seconds: float = 2 * SHORTEST_JUDGED_S, after: dict[str, int] | None = None
) -> Soak:
    """A soak of a process, sampled each ten seconds."""
    before = {CONNECTIONS: 8, FILES: 20, "tasks": 25}
    moments = [10.0 * number for number in range(int(seconds / 10))]
    return Soak(
        seconds,
        0.0,
        Outcome(chats=3, answered=2, left=1),
        [Sample(at_s, {"edge": 50 + grows_mib_per_h * at_s / 3600}) for at_s in moments],
        {"edge": before},
        {"edge": after or before},
        [],
    )


@pytest.mark.long
def test_nothing_is_left_of_chats_of_all_kinds_half_of_whose_clients_leave(
    service: Service, progress: Progress, tmp_path: Path
) -> None:
    soak = Campaign(service, tmp_path, progress, chats_per_s=60).run(seconds=2, warm_up_s=0, first_s=0.5)
    assert soak.violations() == []
    assert soak.outcome.answered > 0
    assert soak.outcome.left > 0
    assert set(soak.outcome.by_kind) == {kind.name for kind in KINDS}
    assert {"tasks", CONNECTIONS, "journal slots"} <= set(soak.after["edge-1"])


def test_memory_that_grows_is_told_after_long_enough() -> None:
    assert soak_of(grows_mib_per_h=4.9).violations() == []
    assert soak_of(grows_mib_per_h=5.1).violations() == ["edge: its memory grows by 5.1 MiB an hour"]
    assert soak_of(grows_mib_per_h=5.1, seconds=SHORTEST_JUDGED_S / 2).violations() == []


def test_moment_of_need_is_no_growth() -> None:
    assert filtered([1.0] * 20 + [90.0] * 3 + [1.0] * 20) == [1.0] * 43
    assert slope([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({CONNECTIONS: 9, FILES: 20, "tasks": 25}, ["edge: 9 connections, and 8 before"]),
        ({CONNECTIONS: 8, FILES: 20, "tasks": 26}, ["edge: 26 tasks, and 25 before"]),
        ({CONNECTIONS: 8, FILES: 20 + LAZY[FILES], "tasks": 24}, []),
        ({CONNECTIONS: 8, FILES: 21 + LAZY[FILES], "tasks": 25}, ["edge: 33 files, and 20 before"]),
    ],
)
def test_whatever_is_left_is_told_but_for_what_readers_open_once(after: dict[str, int], told: list[str]) -> None:
    assert soak_of(after=after).violations() == told


def test_books_that_are_wrong_and_answers_that_are_wrong_are_told() -> None:
    wrong = Outcome(chats=2, answered=1, wrong=1, wrongs=["whole: 500"])
    soak = msgspec.structs.replace(soak_of(), outcome=wrong, faults=["the answers were worth 2 nanos, and 3 charged"])
    assert soak.violations() == [
        "the answers were worth 2 nanos, and 3 charged",
        "1 chats went wrong: whole: 500",
    ]


def test_busy_machine_may_turn_some_away_but_not_many() -> None:
    few, many = (Outcome(chats=1000, turned_away=turned_away) for turned_away in (10, 11))
    assert msgspec.structs.replace(soak_of(), outcome=few).violations() == []
    told = msgspec.structs.replace(soak_of(), outcome=many).violations()
    assert told == ["11 of 1000 chats were told to retry"]


def test_table_has_a_line_for_each_process() -> None:
    lines = table(soak_of(after={CONNECTIONS: 7, FILES: 20, "tasks": 25})).splitlines()
    assert [line.split()[0] for line in lines if line] == ["private", "edge", "before,", "edge"]
    assert "8, 7" in lines[-1]
