"""Rows of many runs together, from runs that are made up."""

import pytest

from bench.chats import Case
from bench.runs import Run, rows_of
from bench.targets import DATABASE, DIRECT, RELAY
from tests.bench.made_up import run_of

LEGATO = "Legato"
WHOLE = Case("whole", in_flight=1)
STREAMED = Case("streamed", in_flight=1, chunks=100)


def test_cost_is_the_median_of_all_runs_beside_the_relays() -> None:
    runs = {
        DIRECT: [run_of()],
        RELAY: [run_of(relay=0.5), run_of(relay=0.4), run_of(relay=9.0)],
        LEGATO: [run_of(edge=0.5, router=0.5), run_of(edge=0.6, router=0.3), run_of(edge=0.7, router=0.5)],
    }
    provider, relay, legato = rows_of(WHOLE, runs)
    assert (provider.figures["CPU ms a chat"], relay.figures["CPU ms a chat"]) == (None, 0.5)
    assert legato.figures["CPU ms a chat"] == pytest.approx(1.0)
    assert legato.figures["of the relay's"] == pytest.approx(2.0)
    assert (legato.figures["edge"], legato.figures["router"]) == (0.6, 0.5)


def test_stream_costs_by_the_chunk() -> None:
    runs = {DIRECT: [run_of(chunks=1000)], RELAY: [run_of(chunks=1000, relay=0.01)]}
    assert list(rows_of(STREAMED, runs))[1].figures["CPU µs a chunk"] == pytest.approx(10)


def test_database_is_shown_and_is_not_ours() -> None:
    runs = {DIRECT: [run_of()], RELAY: [run_of(relay=1.0)], LEGATO: [run_of(edge=1.0, database_s=3.0)]}
    figures = list(rows_of(WHOLE, runs))[2].figures
    assert (figures["CPU ms a chat"], figures[DATABASE]) == (1.0, 3.0)


def test_target_that_never_answered_has_no_row() -> None:
    runs = {DIRECT: [run_of()], RELAY: [run_of(relay=1.0)], "peer": list[Run]()}
    assert [row.case for row in rows_of(WHOLE, runs)] == [DIRECT, RELAY]
