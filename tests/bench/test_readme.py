"""Figures find their way into the documents, from figures that are made up."""

from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from bench.figures import Figures
from bench.measurements.beside_relay import BURST, CASES, FOOTPRINT, MANY, PACED, SLOW_10
from bench.measurements.promises import PROMISES, verdict, verdicts
from bench.readme import DETAILS, PANELS, ROOT, SUMMARY, replace_marked, update
from bench.report import CALIBRATION, Row
from bench.targets import ON_POSTGRESQL, ON_SQLITE, RELAY

TARGETS = (RELAY, ON_SQLITE, ON_POSTGRESQL, "Other <gateway>")
PLACES = (
    "before\n<!-- figures: summary -->\nold\n<!-- /figures -->\nafter\n<!-- figures: details -->\n<!-- /figures -->\n"
)


def made_up(share: float) -> list[Row]:
    """Everything that is promised at this share of its bound."""
    rows = [Row(CALIBRATION, "a fixed loop", {"most / least": 1.02, "disk sync p50 ms": 0.5}, 0.0)]
    for measurement in (*(case.name for case in CASES), FOOTPRINT):
        bounds = {promise.figure: promise.most for promise in PROMISES if promise.measurement == measurement}
        figures: dict[str, float | None] = {"CPU ms a chat": 0.25, "CPU µs a chunk": 25.0}
        figures |= {figure: share * most for figure, most in bounds.items()}
        rows += [Row(measurement, target, figures, 0.03) for target in TARGETS]
    return rows


def test_each_document_gets_a_table_and_the_page_a_chart_of_every_target(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    readme, page = tmp_path / "README.md", tmp_path / "docs" / "performance.md"
    for document in (readme, page):
        document.write_text(PLACES)
    figures = Figures({"processors": 2, "kind": "x86_64", "python": "3.11.7"}, made_up(0.5), [])
    update(figures, tmp_path)
    once = readme.read_text()
    update(figures, tmp_path)
    assert readme.read_text() == once
    assert once.startswith("before\n")
    assert "\nafter\n" in once
    assert "old" not in once
    head, _, first = once.split("<!-- figures: summary -->\n")[1].splitlines()[:3]
    assert head == f"|  | {' | '.join(TARGETS)} | Aim |"
    assert first == "| Of the relay's CPU, 10 slow streams | 1.1 | 1.1 | 1.1 | 1.1 | ≤ 2.2 |"
    written = page.read_text()
    assert written.count("\n|---") == 1, "one table"
    for case in (SLOW_10, BURST, PACED):
        assert f"| CPU µs a chunk, {case.name} | 25 | 25 | 25 | 25 |  |" in written
    assert f"| CPU ms a chat, {MANY.name} | 0.25 | 0.25 | 0.25 | 0.25 |  |" in written
    for promise in PROMISES:
        assert promise.about[1:] in written
    texts = [
        element.text for element in ElementTree.fromstring((tmp_path / "docs" / "performance.svg").read_text()).iter()
    ]
    assert all(texts.count(target) == len(PANELS) for target in TARGETS)


def test_our_documents_have_places_for_the_figures() -> None:
    for path, name in ((ROOT / "README.md", SUMMARY), (ROOT / "docs" / "performance.md", DETAILS)):
        assert "the figures" in replace_marked(path.read_text(), name, "the figures")


def test_document_without_a_place_is_left_alone() -> None:
    with pytest.raises(click.ClickException, match="no place"):
        replace_marked("nothing here", SUMMARY, "text")


@pytest.mark.parametrize(("share", "kept"), [(0.99, True), (1.2, False)])
def test_every_promise_is_judged_for_both_stores(share: float, kept: bool) -> None:
    judged = list(verdicts(made_up(share)))
    assert [one.is_kept for one in judged] == [kept] * 2 * len(PROMISES)
    assert verdict(made_up(share)).count("BROKEN") == (0 if kept else 2 * len(PROMISES))


def test_one_at_a_time_may_wait_for_the_disk_too() -> None:
    [most, *_] = [one.most for one in verdicts(made_up(1.0)) if "one at a time" in one.about]
    assert most == 3.5
