"""Figures find their way into the documents, from figures that are made up."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from bench.chats import Case
from bench.figures import Figures
from bench.measurements import agents, beside_relay
from bench.measurements.beside_relay import BURST, FOOTPRINT, MANY, PACED, SLOW_10
from bench.measurements.promises import BESIDE_PEERS, OF_CHATS, OF_PROMPTS, verdict, verdicts
from bench.readme import (
    AGENTS,
    DETAILS,
    INTRODUCTION,
    PAGE,
    PANELS,
    PEERS,
    README,
    ROOT,
    SUMMARY,
    replace_marked,
    update,
    update_if_quiet,
)
from bench.report import CALIBRATION, Row
from bench.targets import LITELLM, ON_POSTGRESQL, ON_SQLITE, RELAY, TENSORZERO

OURS = (RELAY, ON_SQLITE, ON_POSTGRESQL)
TARGETS = (*OURS, LITELLM, TENSORZERO)
CASES = (*beside_relay.CASES, *agents.CASES)
ABSOLUTE = (*OF_CHATS, *OF_PROMPTS)
PLACES = "".join(
    f"before\n<!-- figures: {name} -->\nold\n<!-- /figures -->\nafter\n" for name in (SUMMARY, PEERS, AGENTS, DETAILS)
)


def made_up(
    share: float, targets: Sequence[str] = OURS, cases: Sequence[Case] = CASES, others_share: float = 0.03
) -> list[Row]:
    """Everything that is promised at this share of its bound; peers' figures are all 2."""
    rows = [Row(CALIBRATION, "a fixed loop", {"most / least": 1.02, "disk sync p50 ms": 0.5}, 0.0)]
    for measurement in (*(case.name for case in cases), FOOTPRINT):
        bounds = {promise.figure: promise.most for promise in ABSOLUTE if promise.measurement == measurement}
        figures: dict[str, float | None] = {"CPU ms a chat": 0.25, "CPU µs a chunk": 25.0, "CPU ms a turn": 0.2}
        figures |= {figure: share * most for figure, most in bounds.items()}
        rows += [Row(measurement, target, figures, others_share) for target in targets if target in OURS]
        of_peer: dict[str, float | None] = dict.fromkeys(figures, 2.0)
        rows += [Row(measurement, target, of_peer, others_share) for target in targets if target not in OURS]
    return rows


def figures_of(rows: list[Row]) -> Figures:
    return Figures({"processors": 2, "kind": "x86_64", "python": "3.11.7"}, rows, [])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Documents with all places."""
    (tmp_path / "docs").mkdir()
    for path in (README, PAGE):
        (tmp_path / path).write_text(PLACES)
    return tmp_path


def block(document: Path, name: str) -> str:
    return document.read_text().split(f"<!-- figures: {name} -->\n")[1].split("\n<!-- /figures -->")[0]


def test_run_beside_the_relay_writes_the_page_and_its_chart(root: Path) -> None:
    update(figures_of(made_up(0.5, cases=beside_relay.CASES)), root)
    once = (root / PAGE).read_text()
    update(figures_of(made_up(0.5, cases=beside_relay.CASES)), root)
    assert (root / PAGE).read_text() == once
    assert (root / README).read_text() == PLACES
    assert [block(root / PAGE, name) for name in (PEERS, AGENTS)] == ["old", "old"]
    written = block(root / PAGE, DETAILS)
    assert written.splitlines()[0] == f"|  | {' | '.join(OURS)} | Aim |"
    for case in (SLOW_10, BURST, PACED):
        assert f"| CPU µs a chunk, {case.name} | 25 | 25 | 25 |  |" in written
    assert f"| CPU ms a chat, {MANY.name} | 0.25 | 0.25 | 0.25 |  |" in written
    assert all(promise.about[1:] in written for promise in OF_CHATS)
    texts = [element.text for element in ElementTree.fromstring((root / "docs" / "performance.svg").read_text()).iter()]
    assert all(texts.count(target) == len(PANELS) for target in OURS)


def test_run_with_agents_writes_their_table(root: Path) -> None:
    update(figures_of(made_up(0.5, cases=agents.CASES)), root)
    written = block(root / PAGE, AGENTS)
    assert "| Of the relay's CPU, 300 KB, known | 1.5 | 1.5 | 1.5 | ≤ 3 |" in written
    assert all(case.name in written for case in agents.CASES)
    assert [block(root / PAGE, name) for name in (PEERS, DETAILS)] == ["old", "old"]
    assert (root / README).read_text() == PLACES


def test_run_with_peers_writes_what_a_newcomer_sees_first(root: Path) -> None:
    update(figures_of(made_up(0.5, TARGETS, (*agents.CASES, MANY, SLOW_10))), root)
    introduction, table = block(root / README, SUMMARY).split("\n\n")[:2]
    assert introduction == INTRODUCTION
    lines = table.splitlines()
    assert lines[0] == f"|  | {' | '.join(TARGETS)} | Aim |"
    assert "| CPU ms a short chat, 64 at once | 0.25 | 0.25 | 0.25 | 2 | 2 |  |" in lines
    written = block(root / PAGE, PEERS)
    assert "| CPU of LiteLLM's, 300 KB, known | 0.1 | 0.1 | 0.1 | 1 | 1 | ≤ 0.25 |" in written
    assert [block(root / PAGE, name) for name in (AGENTS, DETAILS)] == ["old", "old"]


def test_figures_of_a_busy_machine_and_of_other_measurements_are_not_written(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    update_if_quiet(figures_of(made_up(0.5, others_share=0.2)), root)
    assert "not written" in capsys.readouterr().out
    update_if_quiet(figures_of([Row("journal", "one", {"µs": 1.0}, 0.0)]), root)
    assert capsys.readouterr().out == ""
    assert [(root / path).read_text() for path in (README, PAGE)] == [PLACES, PLACES]
    update_if_quiet(figures_of(made_up(0.5)), root)
    assert "docs/performance.md" in capsys.readouterr().out
    assert (root / PAGE).read_text() != PLACES


def test_our_documents_have_places_for_the_figures() -> None:
    for path, name in ((README, SUMMARY), (PAGE, PEERS), (PAGE, AGENTS), (PAGE, DETAILS)):
        assert "the figures" in replace_marked((ROOT / path).read_text(), name, "the figures")


def test_document_without_a_place_is_left_alone() -> None:
    with pytest.raises(click.ClickException, match="no place"):
        replace_marked("nothing here", SUMMARY, "text")


@pytest.mark.parametrize(("share", "kept"), [(0.99, True), (1.2, False)])
def test_every_promise_is_judged_for_both_stores(share: float, kept: bool) -> None:
    judged = list(verdicts(made_up(share)))
    assert [one.is_kept for one in judged] == [kept] * 2 * len(ABSOLUTE)
    assert verdict(made_up(share)).count("BROKEN") == (0 if kept else 2 * len(ABSOLUTE))


def test_peers_are_judged_by_the_part_of_their_figure() -> None:
    rows = made_up(1.0, TARGETS)
    about = {promise.about: promise for promise in BESIDE_PEERS}
    of_peers = {one.about: one for one in verdicts(rows) if one.about in about and one.target == ON_SQLITE}
    cost, added = (of_peers[f"{what} of LiteLLM's, 300 KB, known"] for what in ("CPU", "added p50"))
    assert (cost.seen, cost.is_kept) == (0.1, True)
    assert (added.seen, added.is_kept) == (4.0, False)


def test_one_at_a_time_may_wait_for_the_disk_too() -> None:
    [most, *_] = [one.most for one in verdicts(made_up(1.0)) if "one at a time" in one.about]
    assert most == 3.5
