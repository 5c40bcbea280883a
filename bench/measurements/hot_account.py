"""Measures how many requests per second of a single account metering can hold and settle.

One account is the worst case: all its operations change the same row, and PostgreSQL holds its lock until the commit is
on disk. For comparison, the same is measured with one operation per transaction.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.measurements.hot_account_load import GRANT_NANOS, TIMEOUT_S, Order, Outcome
from bench.report import Progress, Row
from bench.targets import ChargesWrong
from services.chassis.database.database import Database, open_database
from tests.support.servers.child import start_child

# The tests' PostgreSQL: it needs no installation, and can be configured to sync every commit.
from tests.support.servers.postgres import Postgres

NAME: Final = "hot account"
ROOT: Final = Path(__file__).parents[2]
# Enough to prepare the statements and write the first pages.
WARM_UP_MOST_S: Final = 1.0


class Case(NamedTuple):
    name: str
    on_postgresql: bool
    by_group: bool


CASES: Final = (
    Case("PostgreSQL, group commits", on_postgresql=True, by_group=True),
    Case("PostgreSQL, one by one", on_postgresql=True, by_group=False),
    Case("SQLite, group commits", on_postgresql=False, by_group=True),
    Case("SQLite, one by one", on_postgresql=False, by_group=False),
)


def measure(seconds: float, in_flight: int, progress: Progress) -> Iterator[Row]:
    with _postgres() as postgres:
        for case in CASES:
            yield measure_case(case, postgres, seconds, in_flight, progress)


@contextmanager
def _postgres() -> Iterator[Postgres]:
    postgres = Postgres(durable=True)
    postgres.start()
    try:
        yield postgres
    finally:
        postgres.stop()


def measure_case(case: Case, postgres: Postgres, seconds: float, in_flight: int, progress: Progress) -> Row:
    progress.step(f"{NAME}: {case.name}", expected_s=seconds + WARM_UP_MOST_S)
    url = postgres.create_database() if case.on_postgresql else ""
    # A short name, because the path of a Unix socket is limited to about a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as name:
        folder = Path(name)
        with _metering(case, folder, url) as metering:
            groups = {"metering": metering.pid}
            if case.on_postgresql:
                groups["PostgreSQL"] = postgres.process_id
            warm_up_s = min(seconds, WARM_UP_MOST_S)
            order = Order(f"unix:{folder}/run/metering.sock", in_flight, warm_up_s, seconds, groups)
            outcome = _put_load(order, folder, progress)
        check_charges(outcome)
        database = open_database("metering", url, folder)
        commits = _count_batches(database) if case.by_group else outcome.all_operations
        database.close()
    return Row(
        NAME,
        case.name,
        {
            "pairs/s": outcome.pairs_per_s,
            "reserve p50 ms": outcome.reserve_p50_ms,
            "reserve p99 ms": outcome.reserve_p99_ms,
            "ops a commit": outcome.all_operations / commits,
            # CPU time per pair, by kind of process.
            **{f"CPU µs: {name}": _cpu_us_a_pair(outcome, name) for name in ("metering", "PostgreSQL", "load")},
        },
        outcome.spent.others_share,
    )


@contextmanager
def _metering(case: Case, folder: Path, url: str) -> "Iterator[subprocess.Popen[bytes]]":
    module = "services.metering" if case.by_group else "bench.measurements.one_by_one"
    process = _start(["-m", module], folder, {"LEGATO_DATA": str(folder), "LEGATO_DATABASE_URL": url})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _put_load(order: Order, folder: Path, progress: Progress) -> Outcome:
    result = folder / "outcome.json"
    load = _start(
        ["-m", "bench.measurements.hot_account_load", msgspec.json.encode(order).decode(), str(result)], folder, {}
    )
    while load.poll() is None:
        progress.show()
        time.sleep(0.1)
    if load.returncode != 0:
        raise RuntimeError(f"The load did not come to its end:\n{(folder / 'output').read_text()}")
    return msgspec.json.decode(result.read_bytes(), type=Outcome)


def _start(arguments: list[str], folder: Path, settings: dict[str, str]) -> "subprocess.Popen[bytes]":
    # The measured service must not read settings from this environment.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    environ |= {"PYTHONPATH": str(ROOT), **settings}
    return start_child([sys.executable, *arguments], folder / "output", last_signal=signal.SIGTERM, environ=environ)


def check_charges(outcome: Outcome) -> None:
    if outcome.balance_nanos != GRANT_NANOS - outcome.charged_nanos or outcome.held_nanos or outcome.violations:
        raise ChargesWrong(
            f"{outcome.all_operations} operations charged {outcome.charged_nanos} nanos; the balance fell by"
            f" {GRANT_NANOS - outcome.balance_nanos}, {outcome.held_nanos} are held; audit: {outcome.violations}"
        )


def _count_batches(database: Database) -> int:
    """Counts batches by their timestamps: all operations of a batch have the same one."""
    moments = "SELECT reserved_at_us FROM holds UNION SELECT resolved_at_us FROM holds"
    with database.transaction(writes=False) as connection:
        return int(connection.exec_driver_sql(f"SELECT count(*) FROM ({moments}) AS batches").scalar_one())


def _cpu_us_a_pair(outcome: Outcome, name: str) -> float | None:
    cpu_s = outcome.spent.cpu_s.get(name)
    return None if cpu_s is None else cpu_s * 1_000_000 / outcome.pairs
