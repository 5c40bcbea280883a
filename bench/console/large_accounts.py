"""Fills a metering database with an account that has very many charges and keys, by SQL alone, and times its reports.

`python -m bench.console.large_accounts 1000000` prints how long each report takes, and the processor time of it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from services.chassis.database.database import Database
from services.metering.audit.account_audits import AccountAudits
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.reports.usage import report_usage
from services.metering.statements.rules import StatementQuery, read_days, read_entry_page
from services.rules.model_classes import CLASSES

ACCOUNT_ID: Final = "acct_0123456789abcdef"
KEYS: Final = 10_000
BUSY_KEYS: Final = 20
DAYS: Final = 90
MIGRATIONS: Final = Path("services/metering/migrations")
_RUNS: Final = 20

# Each charge is of 1,000 prompt tokens and 100 answer tokens, at prices of one version.
_CLASS: Final = "CASE n % 3 WHEN 0 THEN 'mezzo' WHEN 1 THEN 'forte' ELSE 'fortissimo' END"
_COST: Final = 450_000
_COLUMNS: Final = (
    "kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos, loss_nanos, external_nanos, key_id, "
    'class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens, completion_tokens, basis, "end"'
)
_HOLD_COLUMNS: Final = (
    "request_id, account_id, key_id, class_id, state, amount_nanos, price_version, prompt_tokens, cached_tokens, "
    'completion_tokens, charged_nanos, loss_nanos, loss_bound_nanos, basis, "end", counted_hour_us, reserved_at_us, '
    "resolved_at_us, first_token_ms, duration_ms"
)


def numbers(count: int, *, is_sqlite: bool, first: int = 0) -> str:
    """Returns a query of so many numbers, as `n`."""
    if is_sqlite:
        counting = f"SELECT {first} UNION ALL SELECT n + 1 FROM counting WHERE n + 1 < {first + count}"
        return f"(WITH RECURSIVE counting(n) AS ({counting}) SELECT n FROM counting) AS numbers"
    return f"generate_series({first}, {first + count - 1}) AS numbers(n)"


def key_id(number: str, *, is_sqlite: bool) -> str:
    """Returns an expression for the id of a key."""
    digits = f"printf('%016d', {number})" if is_sqlite else f"lpad(({number})::text, 16, '0')"
    return f"'key_' || {digits}"


def fill(database: Database, entries: int, until_us: int, account_id: str = ACCOUNT_ID) -> None:
    """Writes an account's charges of some months, in turns of all keys and classes: at 10,000,000 each has a counter of
    its own. They take 5 GB on SQLite, and as much again until the end."""
    span_us = DAYS * DAY_US
    start_us, granted = until_us - span_us, _COST * entries * 2
    account = f"'{account_id}'"
    prices = ", ".join(f"(1, '{name}', 250000000, 25000000, 2000000000)" for name in CLASSES)
    grant = (
        f"'grant', 'filled', {account}, {granted}, {start_us}, 0, 0, -{granted}, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL"
    )
    added = "ON CONFLICT (account_id) DO UPDATE SET balance_nanos = accounts.balance_nanos + excluded.balance_nanos"
    statements = [
        "INSERT INTO price_versions VALUES (1, 0) ON CONFLICT DO NOTHING",
        f"INSERT INTO prices VALUES {prices} ON CONFLICT DO NOTHING",
        f"INSERT INTO accounts (account_id, balance_nanos, held_nanos) VALUES ({account}, {granted}, 0) {added}",
        f"INSERT INTO ledger ({_COLUMNS}) VALUES ({grant})",
        *_charges(account_id, 0, entries, start_us, span_us // entries, is_sqlite=database.is_sqlite),
    ]
    _run(database, statements)


def charge(database: Database, first: int, count: int, at_us: int, account_id: str = ACCOUNT_ID) -> None:
    """Writes further charges, from a number on, as if they were booked at a time; of some busy keys."""
    _run(database, _charges(account_id, first, count, at_us, 0, keys=BUSY_KEYS, is_sqlite=database.is_sqlite))


def _charges(
    account_id: str, first: int, count: int, start_us: int, step_us: int, *, keys: int = KEYS, is_sqlite: bool
) -> Sequence[str]:
    charges = numbers(count, is_sqlite=is_sqlite, first=first)
    number = "n" if is_sqlite else "n::bigint"
    at = f"{start_us} + ({number} - {first}) * {step_us}"
    hour = f"({at}) - ({at}) % {HOUR_US}"
    key = key_id(f"{number} * 7919 % {keys}", is_sqlite=is_sqlite)
    request_id = "printf('%032x', n)" if is_sqlite else "lpad(to_hex(n), 32, '0')"
    account = f"'{account_id}'"
    entry = f"'charge', {request_id}, {account}, -{_COST}, {at}, {_COST}, 0, 0, {key}, {_CLASS}, 1, {hour}"
    hold = f"{request_id}, {account}, {key}, {_CLASS}, 'settled', 0, 1, 1000, 0, 100, {_COST}, 0, 0"
    ended = f"'provider', 'complete', {hour}, {at}, {at}, 200 + n % 997, 1000 + n % 9973"
    sums = f"count(*), 1000 * count(*), 0, 100 * count(*), {_COST} * count(*), 0"
    summed = "requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos"
    counted = ("requests", "prompt_tokens", "completion_tokens", "cost_nanos")
    added = ", ".join(f"{name} = usage_hours.{name} + excluded.{name}" for name in counted)
    counters = (
        f"INSERT INTO usage_hours (account_id, hour_us, key_id, class_id, {summed})"
        f" SELECT {account}, {hour}, {key}, {_CLASS}, {sums} FROM {charges} WHERE true"
        f" GROUP BY 2, 3, 4 ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE SET {added}"
    )
    return (
        # A booking locks the account first.
        f"UPDATE accounts SET balance_nanos = balance_nanos - {_COST * count} WHERE account_id = {account}",
        f"INSERT INTO holds ({_HOLD_COLUMNS}) SELECT {hold}, {ended} FROM {charges}",
        f"INSERT INTO ledger ({_COLUMNS}) SELECT {entry}, 1, 1000, 0, 100, 'provider', 'complete' FROM {charges}",
        counters,
    )


def _run(database: Database, statements: Iterable[str]) -> None:
    with database.transaction(writes=True) as connection:
        # SQLAlchemy would take a percent sign for a parameter.
        driver: Any = connection.connection.driver_connection
        for statement in statements:
            driver.execute(statement)


async def measure(database: Database, until_us: int) -> None:
    end_us = until_us - until_us % HOUR_US + HOUR_US
    month = (end_us - 30 * DAY_US, end_us)
    by_class = UsageReportQuery(ACCOUNT_ID, *month, DAY_US, group_by_key=False, group_by_class=True)
    key_ids = tuple(f"key_{number:016d}" for number in range(200))
    by_key = UsageReportQuery(ACCOUNT_ID, *month, 0, group_by_key=True, group_by_class=False, key_ids=key_ids)
    entries = StatementQuery(ACCOUNT_ID, None, None, newest_first=True, size=25, position=None)
    auditor = AccountAudits(database)
    reports: dict[str, Callable[[], Awaitable[Any]]] = {
        "Usage by class, 30 days": lambda: database.read(report_usage, by_class),
        "Usage of 200 keys, 30 days": lambda: database.read(report_usage, by_key),
        "Statement of a month": lambda: database.read(read_days, ACCOUNT_ID, *month, ""),
        "Entries, first page": lambda: database.read(read_entry_page, entries),
    }
    sys.stdout.write("| Report | First | Then, p50 | p99 | CPU time |\n|---|---|---|---|---|\n")
    for name, report in reports.items():
        first_ms, _ = await _time(report)
        runs = sorted([await _time(report) for _ in range(_RUNS)])
        cpu_ms = sum(cpu for _, cpu in runs) / _RUNS
        _show(name, first_ms, runs[_RUNS // 2][0], runs[-1][0], cpu_ms)
    for name in ("Verify my ledger", "Verify my ledger, again"):
        took_ms, cpu_ms = await _time(lambda: auditor.audit(ACCOUNT_ID, 1000.0))
        _show(name, took_ms, took_ms, took_ms, cpu_ms)


def _show(name: str, *figures_ms: float) -> None:
    sys.stdout.write(f"| {name} | {' | '.join(f'{figure:.1f} ms' for figure in figures_ms)} |\n")


async def _time(report: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    began_s, cpu_s = time.monotonic(), time.process_time()
    await report()
    return 1000 * (time.monotonic() - began_s), 1000 * (time.process_time() - cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("entries", type=int, nargs="?", default=300_000)
    parser.add_argument("--folder", type=Path, help="where the database is kept, and found again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lg-") as temporary:
        path = (given.folder or Path(temporary)) / f"metering-{given.entries}.db"
        is_new = not path.exists()
        database = Database(f"sqlite:///{path}", "metering")
        database.prepare(MIGRATIONS, migrates=True)
        now_us = int(time.time()) * 1_000_000
        if is_new:
            fill(database, given.entries, now_us)
        asyncio.run(measure(database, now_us))
        database.close()


if __name__ == "__main__":
    main()
