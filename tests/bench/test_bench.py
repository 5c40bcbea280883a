"""The measurements come to their end, and lose nothing on the way. How fast they were is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import cancellation, slow_readers
from bench.hot_account import CASES, BooksWrong, check_books
from bench.load import GRANT_NANOS, Outcome
from bench.overload import CURVE, EDGE_CURVE, FAIRNESS
from bench.processors import Spent

ROOT = Path(__file__).parents[2]
PATIENCE_S = 900


def outcome(*, balance_nanos: int = GRANT_NANOS - 30, held_nanos: int = 0, violations: tuple[str, ...] = ()) -> Outcome:
    """Of a run that charged 30 nanos."""
    return Outcome(3.0, 3, 1.0, 2.0, Spent({}, 0.0), 3, 30, balance_nanos, held_nanos, list(violations))


def test_measurements_print_one_table_and_write_their_figures(tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--seconds", "0.2", "--in-flight", "8", "--json", str(figures_file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    # A run whose books are wrong ends otherwise.
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(figures_file.read_text())["rows"]
    assert all(row["case"] in done.stdout for row in rows)
    measurements = {"disk sync", "journal", "hot account", CURVE, FAIRNESS, EDGE_CURVE}
    measurements |= {cancellation.MEASUREMENT, slow_readers.MEASUREMENT}
    assert {row["measurement"] for row in rows} == measurements
    on_hot_account = {row["case"]: row["figures"] for row in rows if row["measurement"] == "hot account"}
    assert list(on_hot_account) == [case.name for case in CASES]
    for name, figures in on_hot_account.items():
        assert figures["pairs/s"] > 0
        assert figures["reserve p99 ms"] >= figures["reserve p50 ms"] > 0
        assert figures["ops a commit"] == 1 if "one by one" in name else figures["ops a commit"] >= 1
        assert (figures["CPU µs: PostgreSQL"] is None) is ("SQLite" in name)

    curve = {row["case"]: row["figures"] for row in rows if row["measurement"] == CURVE}
    assert list(curve) == ["peak", "0.5x", "1x", "1.5x", "2x", "3x"]
    assert max(figures["of the peak %"] for figures in curve.values()) == pytest.approx(100)
    assert "Goodput at 3x is" in done.stdout

    assert all(row["figures"]["clients"] > 0 for row in rows if row["measurement"] == cancellation.MEASUREMENT)
    # Memory is not a matter of how busy the machine is.
    assert all(
        row["figures"]["KB a reader"] <= slow_readers.PROMISED_KB
        for row in rows
        if row["measurement"] == slow_readers.MEASUREMENT
    )


def test_run_that_lost_nothing_is_believed() -> None:
    check_books(outcome())


@pytest.mark.parametrize(
    "wrong",
    [
        outcome(balance_nanos=GRANT_NANOS - 20),
        outcome(balance_nanos=GRANT_NANOS - 40),
        outcome(held_nanos=1),
        outcome(violations=("the ledger of acct_bench adds up to something else",)),
    ],
    ids=["a charge is missing", "a charge was made twice", "credit is still held", "the audit objects"],
)
def test_run_whose_books_are_wrong_is_thrown_away(wrong: Outcome) -> None:
    with pytest.raises(BooksWrong):
        check_books(wrong)
