"""The measurements come to their end, and lose nothing on the way. How fast they were is not judged here."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import clients
from bench.chats import Case, started_upstream
from bench.children import started_provider
from bench.clients import Offer
from bench.conversations import Conversation
from bench.measurements import big_prompt, cancellation, hot_account, rpc_beside_http, slow_readers
from bench.measurements.hot_account import CASES, check_charges
from bench.measurements.hot_account_load import GRANT_NANOS, Outcome
from bench.measurements.overload import (
    ANSWER_S,
    CURVE,
    FAIRNESS,
    FIRST_S,
    SLOTS,
    NothingAnswered,
    OverloadHarness,
    measure_curve,
)
from bench.measurements.rpc_beside_http import Load
from bench.measurements.slow_readers import Endless
from bench.processors import Spent
from bench.report import Progress, Row
from bench.runs import rows_of, run
from bench.targets import ON_SQLITE, RELAY, ChargeCheck, ChargesWrong, direct, legato_target, started_relay
from tests.bench.conftest import send_to
from tests.support.servers.postgres import Postgres
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Upstream

ROOT = Path(__file__).parents[2]
WAIT_TIMEOUT_S = 300


def outcome(*, balance_nanos: int = GRANT_NANOS - 30, held_nanos: int = 0, violations: tuple[str, ...] = ()) -> Outcome:
    """A run that charged 30 nanos."""
    return Outcome(3.0, 3, 1.0, 2.0, Spent({}, 0.0), 3, 30, balance_nanos, held_nanos, list(violations))


@pytest.mark.long
def test_command_prints_the_sections_asked_for_and_writes_their_figures(tmp_path: Path) -> None:
    figures_file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--only", "journal", "--only", "disk-sync", "--json", str(figures_file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_TIMEOUT_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(figures_file.read_text())["rows"]
    assert [row["measurement"] for row in rows] == ["journal", "journal", "disk sync"]
    assert all(row["case"] in done.stdout for row in rows)


@pytest.mark.long
def test_hot_account_is_measured_on_both_stores_by_group_and_one_by_one(
    postgres_server: Postgres, progress: Progress
) -> None:
    by_group, _, _, one_by_one = CASES
    rows = [hot_account.measure_case(case, postgres_server, 0.2, 8, progress) for case in (by_group, one_by_one)]
    assert [row.case for row in rows] == [by_group.name, one_by_one.name]
    for row in rows:
        assert (row.figures["pairs/s"] or 0) > 0
        assert (row.figures["reserve p99 ms"] or 0) >= (row.figures["reserve p50 ms"] or 0) > 0
    assert [row.figures["CPU µs: PostgreSQL"] is None for row in rows] == [False, True]
    assert rows[1].figures["ops a commit"] == 1


class NotedOffers(OverloadHarness):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.offers: list[list[Offer]] = []

    def _put_load(self, name: str, offers: list[Offer], in_flight: int = 0) -> clients.Outcome:
        self.offers.append(offers)
        return super()._put_load(name, offers, in_flight)


def measured_curve(service: Service, folder: Path, progress: Progress) -> tuple[NotedOffers, list[Row]]:
    """Measures for as long as a busy machine takes to answer at all."""
    for seconds in (0, 10, 60):
        harness = NotedOffers(service, folder, seconds, progress)
        with contextlib.suppress(NothingAnswered):
            return harness, list(measure_curve(harness, multiples=[], greedy_multiple=1.0))
    pytest.fail("nothing was answered")


@pytest.mark.long
def test_overload_has_a_peak_and_a_key_that_asks_for_more_than_all_others(
    service: Service, progress: Progress, tmp_path: Path
) -> None:
    with started_provider(["bench.providers.slots", str(SLOTS), str(FIRST_S), str(ANSWER_S)], tmp_path) as provider:
        send_to(service, provider)
        # This service never refuses, so it gets no more than can be answered.
        harness, (peak, greedy, _) = measured_curve(service, tmp_path, progress)
    assert (peak.measurement, peak.case, greedy.measurement) == (CURVE, "peak", FAIRNESS)
    assert peak.figures["of the peak %"] == pytest.approx(100)
    greedy_offer, *polite_offers = harness.offers[-1]
    assert greedy_offer.chats_per_s > sum(offer.chats_per_s for offer in polite_offers) > 0


@pytest.mark.long
def test_every_way_to_leave_is_known_upstream(service: Service, upstream: Upstream, progress: Progress) -> None:
    rows = list(cancellation.measure_on(service, upstream, 0, progress))
    assert len(rows) == cancellation.STEPS
    assert all((row.figures["clients"] or 0) > 0 for row in rows)


@pytest.mark.long
def test_reader_that_stops_costs_what_is_promised(service: Service) -> None:
    endless = Endless(slow_readers.EVENTS_A_WRITE)
    with UpstreamThread(endless):
        send_to(service, endless)
        row = slow_readers.measure_on(service, endless, 20)
    # Memory is not a matter of how busy the machine is.
    assert 0 < (row.figures["KB a reader"] or 0) <= slow_readers.PROMISED_KB


@pytest.mark.long
def test_big_prompts_of_every_size_are_measured_among_streams(service: Service, progress: Progress) -> None:
    with big_prompt.paced_provider() as (provider, folder):
        send_to(service, provider)
        rows = list(big_prompt.measure_on(service, folder, streams=4, seconds=0.3, rounds=1, progress=progress))
    assert [row.case for row in rows] == list(big_prompt.SIZES_BYTES)
    assert [(row.figures["prompts"] or 0) > 0 for row in rows] == [False, True, True, True]
    assert "With prompts of 4 MB the p99 gap of other streams grows by" in big_prompt.verdict(rows)


@pytest.mark.long
def test_agents_are_measured_beside_the_relay_and_charged_exactly(
    service: Service, progress: Progress, tmp_path: Path
) -> None:
    sessions = Case("sessions", in_flight=2, chunks=3, conversation=Conversation((10_000, 30_000)), sessions=1)
    known = Case("known", in_flight=1, conversation=Conversation((30_000,), is_known=True))
    with started_upstream(tmp_path) as upstream, started_relay(upstream, tmp_path, progress) as relay:
        send_to(service, upstream)
        charge_check = ChargeCheck(service)
        targets = (direct(upstream), relay, legato_target(ON_SQLITE, service, charge_check))
        for case, turns in ((sessions, 2 * 2), (known, 1)):
            runs = {target.name: [run(target, case, upstream, tmp_path, progress, 0.2)] for target in targets}
            assert min(each.outcome.answered for [each] in runs.values()) >= turns
            _, relay_row, our_row = rows_of(case, runs)
            assert (relay_row.case, relay_row.figures["added p50 ms"], our_row.case) == (RELAY, 0, ON_SQLITE)
            assert (our_row.figures["peak MiB"] or 0) > (relay_row.figures["peak MiB"] or 0) > 0
        charge_check.check()


@pytest.mark.long
def test_chats_over_grpc_are_measured_beside_the_same_over_http(
    service: Service, progress: Progress, tmp_path: Path
) -> None:
    loads = Load(Case("whole", in_flight=2), every_s=0.05), Load(Case("streams", in_flight=2, chunks=9, pause_us=1_000))
    with started_upstream(tmp_path) as upstream:
        send_to(service, upstream)
        rows = list(rpc_beside_http.measure_on(service, upstream, tmp_path, progress, loads, seconds=0.2, rounds=1))
    assert [row.case for row in rows] == ["HTTP", "gRPC"] * 2
    assert all((row.figures["edge"] or 0) > 0 for row in rows)


def test_run_that_lost_nothing_is_believed() -> None:
    check_charges(outcome())


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
def test_run_with_wrong_charges_is_discarded(wrong: Outcome) -> None:
    with pytest.raises(ChargesWrong):
        check_charges(wrong)
