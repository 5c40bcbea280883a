"""`make bench-scale` fills databases as chats would, and judges as it should."""

from pathlib import Path

import msgspec
import pytest

from bench.measurements.beside_relay import MANY
from bench.report import Row
from bench.scale import capacity, chunks, flatness, streams, workers
from bench.scale.filling import Size, fill
from bench.scale.flatness import Cost
from bench.scale.streams import slow_streams
from bench.scale.workers import Crew
from bench.targets import DATABASE, PRICES
from services.auth.service import MIGRATIONS as AUTH_MIGRATIONS
from services.chassis.database.database import open_database
from services.metering.audit.auditor import find_violations
from services.metering.credit.prices import read_prices
from services.metering.credit.store.prices import adopt_prices
from services.metering.service import MIGRATIONS as METERING_MIGRATIONS
from tests.bench.made_up import run_of

SOME = Size("some", accounts=7, keys=21, ledger_rows=100)
CLOSED = Size("closed", accounts=4, keys=4, ledger_rows=100, months=3)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_filled_books_stand_the_audit_and_have_the_size_that_was_asked_for(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url: str = "" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    counts = {}
    for service, migrations in (("auth", AUTH_MIGRATIONS), ("metering", METERING_MIGRATIONS)):
        database = open_database(service, url, tmp_path)
        database.migrate(migrations)
        if service == "metering":
            with database.transaction(writes=True) as connection:
                adopt_prices(connection, read_prices(PRICES).current)
        database.close()
    fill(SOME, tmp_path, url)
    for service, tables in (("auth", ("accounts", "api_keys")), ("metering", ("ledger", "holds", "usage_hours"))):
        database = open_database(service, url, tmp_path)
        with database.transaction(writes=False) as connection:
            for table in tables:
                counts[table] = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
            if service == "metering":
                assert find_violations(connection) == []
        database.close()
    assert counts == {"accounts": 7, "api_keys": 21, "ledger": 100, "holds": 93, "usage_hours": 21}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_closed_months_stand_the_audit(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url: str = "" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    for service, migrations in (("auth", AUTH_MIGRATIONS), ("metering", METERING_MIGRATIONS)):
        database = open_database(service, url, tmp_path)
        database.migrate(migrations)
        if service == "metering":
            with database.transaction(writes=True) as connection:
                adopt_prices(connection, read_prices(PRICES).current)
        database.close()
    fill(CLOSED, tmp_path, url)
    database = open_database("metering", url, tmp_path)
    with database.transaction(writes=False) as connection:
        assert find_violations(connection) == []
        assert connection.exec_driver_sql("SELECT sum(entries) FROM closings").scalar_one() == CLOSED.ledger_rows
    database.close()


def test_costs_of_all_processes_of_a_kind_are_added_up() -> None:
    cpu_s = {"edge-1": 0.1, "edge-2": 0.3, "router": 0.2, "metering": 0.1, "auth": 0.0}
    runs = [msgspec.structs.replace(run_of(), cpu_s=cpu_s)]
    row = workers.row_of(MANY, Crew(2, 1), runs, runs)
    assert row.case == "2 edges, 1 router"
    assert row.figures["edge"] == pytest.approx(0.4)
    assert row.figures["CPU ms a chat"] == pytest.approx(0.7)


def test_every_process_has_the_same_number_of_slow_streams() -> None:
    assert [workers.load_of(workers.SLOW, Crew(*crew)).in_flight for crew in ((1, 1), (4, 1), (2, 4))] == [20, 80, 80]
    assert workers.load_of(MANY, Crew(4, 4)) == MANY


@pytest.mark.parametrize(("router_s", "kept"), [(0.19, True), (0.22, False)])
def test_cost_of_a_chunk_is_promised_to_stay_flat_with_more_processes(router_s: float, kept: bool) -> None:
    first = [run_of(chunks=1000, edge=0.1, router=0.1)]
    runs = [run_of(chunks=1000, edge=0.04, router=router_s)]
    rows = [
        workers.row_of(workers.SLOW, Crew(1, 1), first, first),
        workers.row_of(workers.SLOW, Crew(4, 4), runs, first),
    ]
    assert workers.verdict(rows).endswith("kept." if kept else "BROKEN.")


@pytest.mark.parametrize(("edge_s", "kept"), [(0.06, True), (0.09, False)])
def test_planned_streams_fit_the_planned_part_of_a_core(edge_s: float, kept: bool) -> None:
    (case, rate) = next(iter(capacity.CASES.items()))
    # A thousand chunks, of the thousands that all streams have per second.
    row = capacity.row_of(case, rate, run_of(chunks=1000, edge=edge_s, router=0.01))
    assert row.figures["edge cores"] == pytest.approx(edge_s * case.in_flight * rate / 1000)
    assert capacity.verdict([row]).endswith("kept." if kept else "BROKEN.")


def test_medians_among_few_and_among_many_are_held_against_each_other() -> None:
    few = [Cost({"edge": edge_ms, "auth": 0.1, DATABASE: 0.1}, 0.0) for edge_ms in (0.9, 9.0, 1.0)]
    many = [Cost({"edge": edge_ms, "auth": 0.1, DATABASE: 0.2}, 0.0) for edge_ms in (1.2, 1.1, 1.22)]
    rows = list(flatness.rows_of("the same key", "SQLite", [few, many], flatness.SIZES))
    assert rows[1].figures["of few"] == pytest.approx(1.3 / 1.1)
    assert rows[1].figures["database's of few"] == pytest.approx(2)
    assert flatness.verdict(rows).endswith("1.18 times as much; promised are 1.15: BROKEN.")


def test_further_chunk_is_told_without_what_the_stream_itself_costs() -> None:
    runs = {case: [run_of(case.chunks, edge=1.0 + 0.01 * case.chunks)] for case in chunks.CASES}
    rows = list(chunks.rows_of(runs))
    # A run has a thousand answers.
    assert [row.figures[chunks.FURTHER] for row in rows] == [None, pytest.approx(10), pytest.approx(10)]
    assert "10.0 µs among a thousand, and 10.0 µs among a hundred" in chunks.verdict(rows)


def test_streams_last_until_the_last_of_them_was_watched() -> None:
    case = slow_streams(5000, watched_s=60)
    assert case.chunks * case.pause_us / 1e6 > case.ramp_us / 1e6 + 60


@pytest.mark.parametrize(("stream_kb", "growth_kb", "kept"), [(60, 0, True), (61, 0, False), (10, 3, False)])
def test_memory_of_a_stream_is_promised_and_that_it_does_not_grow(stream_kb: int, growth_kb: int, kept: bool) -> None:
    row = Row(streams.MEASUREMENT, "1,000 streams", {"KB a stream": stream_kb, "grew by KB": growth_kb}, 0.0)
    assert streams.verdict([row]).endswith("kept." if kept else "BROKEN.")
