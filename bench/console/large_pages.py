"""Measures the pages of an account with 10,000 keys and very many charges: the processor time of a view, by process.

`python -m bench.console.large_pages 1000000 --store postgresql` fills the databases by SQL, starts the service on them
and views each page: once, which adds up what is kept from then on, and then again and again, while charges are booked.
The aim is a p99 of 200 ms with 10,000,000 entries, which take SQLite 3 minutes and 10 GB to write.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Final

from bench.console.large_accounts import KEYS, charge, fill, key_id, numbers
from services.chassis.database.database import Database, open_database
from tests.e2e.running.test_console import Visitor
from tests.support.servers.postgres import Postgres
from tests.support.up import Up

PATHS: Final = {
    "Overview": "/",
    "Keys": "/keys",
    "Keys, a later page": "",
    "Keys, searched": "/keys?q=9876",
    "One key": f"/keys/key_{4_321:016d}",
    "Usage by class, today": "/usage?period=today",
    "Usage by class, 30 days": "/usage",
    "Usage by class, 12 months": "/usage?period=custom&from={year_ago}&to={today}",
    "Usage by key, today": "/usage?by=key&period=today",
    "Usage by key, 30 days": "/usage?by=key",
    "Usage by key, 12 months": "/usage?by=key&period=custom&from={year_ago}&to={today}",
    "Usage by member, 30 days": "/usage?by=member",
    "Usage of one key, 30 days": f"/usage?keys=key_{4_321:016d}",
    "Errors and speed, 30 days": "/errors-and-speed",
    "Errors and speed, 12 months": "/errors-and-speed?period=custom&from={year_ago}&to={today}",
    "Requests": "/requests",
    "Requests of one key": f"/requests?keys=key_{4_321:016d}",
    "Credit": "/credit",
    "Entries": "/credit/entries",
    "Spend limits": "/credit/limits",
    "Notices": "/settings/notices",
    "Security": "/security",
    "Settings": "/settings",
}
SERVICES: Final = ("console", "auth", "metering")
# Nothing else is to run.
QUIET: Final = {"LEGATO_RETENTION_INTERVAL_S": "0", "LEGATO_AUDIT_INTERVAL_S": "0"}
AIM_MS: Final = 200.0
# As many as come in 4 seconds if there are 10,000,000 in 90 days.
CHARGES_A_VIEW: Final = 5


def fill_keys(data: Path, database_url: str, account_id: str) -> None:
    database = open_database("auth", database_url, data)
    is_sqlite = database.is_sqlite
    digest = "randomblob(32)" if is_sqlite else "sha256(random()::text::bytea)"
    name = "'service ' || n"
    with database.transaction(writes=True) as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute(
            "INSERT INTO api_keys (key_id, account_id, name, scopes, digest, pepper_version, created_at_us)"
            f" SELECT {key_id('n', is_sqlite=is_sqlite)}, '{account_id}', {name}, '', {digest}, 1, n + 1000000"
            f" FROM {numbers(KEYS, is_sqlite=is_sqlite)}"
        )
    database.close()


def fill_charges(data: Path, database_url: str, account_id: str, entries: int) -> None:
    database = open_database("metering", database_url, data)
    fill(database, entries, int(time.time()) * 1_000_000, account_id)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)" if database.is_sqlite else "VACUUM ANALYZE")
    database.close()


def booking(database: Database, account_id: str) -> Callable[[], None]:
    """Returns a function that charges the account for some requests."""
    # Others than those of earlier runs.
    numbered = count(int(time.time() * 1000), CHARGES_A_VIEW)
    return lambda: charge(database, next(numbered), CHARGES_A_VIEW, int(time.time()) * 1_000_000, account_id)


def measure(up: Up, visitor: Visitor, views: int, postgres_id: int | None, book: Callable[[], None]) -> None:
    ids = {name: one["pid"] for name, one in up.processes().items() if name in SERVICES}
    assert len(ids) == len(SERVICES), up.processes()
    if postgres_id is not None:
        ids["database"] = postgres_id
    idle_ms = _idle_ms(ids)
    heads = " | ".join(name.capitalize() for name in ids)
    sys.stdout.write(
        f"| Page | Size | First view | CPU time | {heads} | CPU time, p99 | Time, p50 |\n|{'---|' * (6 + len(ids))}\n"
    )
    today = time.gmtime()
    dates = {
        "today": time.strftime("%Y-%m-%d", today),
        "year_ago": f"{today.tm_year - 1}-{time.strftime('%m-%d', today)}",
    }
    for name, path in _paths(visitor).items():
        asked = path.format(**dates)
        first_ms = _view_until_whole(visitor, asked)
        seen, spent = [], []
        for _ in range(views):
            book()
            before = _cpu_ms(ids)
            seen.append(_view(visitor, asked))
            spent.append({each: after - before[each] for each, after in _cpu_ms(ids).items()})
        idle_share = sum(ms for _, ms, _ in seen) / views / 1000
        means = {each: sum(view[each] for view in spent) / views - idle_ms[each] * idle_share for each in ids}
        times_ms = sorted(ms for _, ms, _ in seen)
        figures = " | ".join(f"{means[each]:.1f}" for each in ids)
        status, _, size = seen[-1]
        p99_ms = sorted(sum(view.values()) for view in spent)[-1 - views // 100]
        sys.stdout.write(
            f"| {name}{'' if status == 200 else f' ({status})'} | {size / 1000:.0f} KB | {first_ms:.0f} ms "
            f"| {sum(means.values()):.1f} ms | {figures} | {p99_ms:.0f} ms{'' if p99_ms <= AIM_MS else ' !'} "
            f"| {times_ms[views // 2]:.0f} ms |\n"
        )
        sys.stdout.flush()


def _paths(visitor: Visitor) -> dict[str, str]:
    """Returns the pages, with the one after the first of keys."""
    page = visitor.ask("GET", "/keys")[1]
    _, has_more, rest = page.partition('href="/keys?page=')
    later = "/keys?page=" + rest.partition('"')[0].replace("&amp;", "&") if has_more else ""
    paths = {**PATHS, "Keys, a later page": later}
    return {name: path for name, path in paths.items() if path}


def _view_until_whole(visitor: Visitor, path: str) -> float:
    """Views a page until it has everything: the first view may end before all counters are added up."""
    began_s = time.monotonic()
    while "is not answering" in visitor.ask("GET", path)[1]:
        time.sleep(1)
    return 1000 * (time.monotonic() - began_s)


def _view(visitor: Visitor, path: str) -> tuple[int, float, int]:
    began_s = time.monotonic()
    status, text = visitor.ask("GET", path)
    return status, 1000 * (time.monotonic() - began_s), len(text)


def _idle_ms(ids: Mapping[str, int]) -> dict[str, float]:
    """Returns what processes spend in a second without requests."""
    before = _cpu_ms(ids)
    time.sleep(3)
    return {name: (after - before[name]) / 3 for name, after in _cpu_ms(ids).items()}


def _cpu_ms(ids: Mapping[str, int]) -> dict[str, float]:
    """Returns the processor time of processes, and of PostgreSQL's own children."""
    children = Path(f"/proc/{ids.get('database', 0)}/task/{ids.get('database', 0)}/children")
    others = [int(each) for each in children.read_text().split()] if children.exists() else []
    return {
        name: sum(map(_spent_ms, (number, *(others if name == "database" else ())))) for name, number in ids.items()
    }


def _spent_ms(process_id: int) -> float:
    """Sums up the time of a process's threads, to the nanosecond; that of a thread that ends is lost."""
    spent_ns = 0
    for stat in Path(f"/proc/{process_id}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            spent_ns += int(stat.read_text().split()[0])
    return spent_ns / 1e6


def _signed_in(up: Up) -> Visitor:
    """Signs in, as soon as the console answers."""
    while True:
        origin, _, code = up.json("console", "sign-in-link")["link"].partition("/sign-in#")
        visitor = Visitor(origin)
        with contextlib.suppress(OSError):
            if visitor.ask("POST", "/sign-in", {"code": code})[0] == 303:
                return visitor
        time.sleep(1)


def _start(data: Path, database_url: str) -> Up:
    url = {"LEGATO_DATABASE_URL": database_url} if database_url else {}
    up = Up(data, "--welcome", "--console-port", "0", "--json", environ={**QUIET, **url})
    assert "ready" in json.loads(up.line()), up.stderr
    return up


def run(data: Path, database_url: str, entries: int, views: int, postgres_id: int | None) -> None:
    if not (data / "filled").exists():
        up = _start(data, database_url)
        try:
            # The line with the console's address: the account is there.
            up.line()
            [account] = up.json("accounts", "list")
        finally:
            up.stop()
            up.close()
        fill_keys(data, database_url, account["account_id"])
        fill_charges(data, database_url, account["account_id"], entries)
        (data / "filled").touch()
    up = _start(data, database_url)
    database = open_database("metering", database_url, data)
    try:
        [account] = up.json("accounts", "list")
        measure(up, _signed_in(up), views, postgres_id, booking(database, account["account_id"]))
    finally:
        database.close()
        up.stop()
        up.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("entries", type=int, nargs="?", default=1_000_000)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--views", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where SQLite's databases are kept, and found again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as temporary:
        data = (given.folder or Path(temporary)) / "data"
        if given.store == "sqlite":
            run(data, "", given.entries, given.views, None)
            return
        server = Postgres(settings={"shared_buffers": "1GB", "autovacuum": "on"})
        server.start()
        try:
            run(data, server.create_database(), given.entries, given.views, server.process_id)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
