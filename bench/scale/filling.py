"""Writes millions of accounts, keys and past chats directly to the databases, as if the service had served them.

The database derives everything that the audit compares from the holds. The service must not be running.
"""

import asyncio
import io
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.targets import CLASS, PRICES
from services.chassis.database.database import Database, open_database
from services.chassis.telemetry.log import Log
from services.metering.ledger.months import CalendarMonth, RetentionPolicy, month_of
from services.metering.ledger.prices import Usage, read_prices
from services.metering.ledger.records import HOUR_US
from services.metering.retention.passes import Retention
from services.metering.store.partitions import FIRST_PARTITION

USAGE: Final = Usage(prompt_tokens=50, completion_tokens=45)
GRANT_NANOS: Final = 10**12
# Any hour in the past.
HOUR: Final = 490_000 * HOUR_US
# The prefix of everything that is created here.
ACCOUNT: Final = "acct_filled"


class Size(NamedTuple):
    name: str
    accounts: int
    keys: int
    # A grant for each account; all other rows are chats.
    ledger_rows: int
    # So many months before this one have the chats, and are closed; their holds were pruned. 0: all chats were in one
    # hour, and nothing is closed.
    months: int = 0

    @property
    def chats(self) -> int:
        return max(0, self.ledger_rows - self.accounts)


FEW: Final = Size("few", accounts=10, keys=10, ledger_rows=10)
MANY: Final = Size("many", accounts=100_000, keys=1_000_000, ledger_rows=2_000_000)


class _Dialect(NamedTuple):
    # A query for the numbers from 1, as `n`.
    numbers: str
    # Sorted by time like real request ids, so that the next one sorts after all of them.
    request_id: str
    # Evenly distributed like key ids, and as long as a digest.
    random_id: str
    random_bytes: str
    # Updates the planner's statistics and syncs to disk.
    afterwards: tuple[str, ...]


_SQLITE: Final = _Dialect(
    numbers="(WITH RECURSIVE counting(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counting WHERE n < {most})"
    " SELECT n FROM counting) AS numbers",
    request_id="printf('%032d', n)",
    random_id="lower(hex(randomblob(8)))",
    random_bytes="randomblob(32)",
    afterwards=("PRAGMA wal_checkpoint(TRUNCATE)",),
)
_POSTGRESQL: Final = _Dialect(
    numbers="generate_series(1, {most}) AS numbers(n)",
    request_id="lpad(n::text, 32, '0')",
    random_id="substr(md5(random()::text), 1, 16)",
    random_bytes="sha256(random()::text::bytea)",
    afterwards=("VACUUM ANALYZE", "CHECKPOINT"),
)


def fill(size: Size, data: Path, database_url: str) -> None:
    dialect = _POSTGRESQL if database_url else _SQLITE
    metering = _closed_months(size, dialect) if size.months else _metering(size, dialect)
    for service, statements in (("auth", _auth(size, dialect)), ("metering", metering)):
        database = open_database(service, database_url, data)
        try:
            _run(database, statements, dialect)
            if size.months and service == "metering":
                asyncio.run(_close(database, size))
        finally:
            database.close()


def _run(database: Database, statements: list[str], dialect: _Dialect) -> None:
    with database.engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if database.is_sqlite:
            # Large trees are written in random order: with a smaller cache every row would be read from disk.
            driver.execute("PRAGMA cache_size = -500000")
            driver.execute("BEGIN IMMEDIATE")
        for statement in statements:
            driver.execute(statement)
        driver.commit()
        if not database.is_sqlite:
            driver.autocommit = True
        for statement in dialect.afterwards:
            driver.execute(statement)


def past_months(count: int) -> list[CalendarMonth]:
    """Returns the months before this one, the oldest first."""
    months = [month_of(round(time.time()) * 1_000_000).previous]
    while len(months) < count:
        months.append(months[-1].previous)
    return months[::-1]


async def _close(database: Database, size: Size) -> None:
    """Closes the months without an audit: it would miss the holds that were pruned."""
    retention = Retention(database, RetentionPolicy(), 0, Log("filling", io.StringIO()), pause_s=0)
    for month in past_months(size.months):
        await retention.close_month(month)


def _auth(size: Size, dialect: _Dialect) -> list[str]:
    accounts = f"""
        INSERT INTO accounts (account_id, name, created_at_us, preferred_class)
        SELECT '{ACCOUNT}' || n, 'filled', n, '{CLASS}' FROM {dialect.numbers.format(most=size.accounts)}
    """
    keys = f"""
        INSERT INTO api_keys (key_id, account_id, name, scopes, digest, pepper_version, created_at_us)
        SELECT 'key_' || {dialect.random_id}, '{ACCOUNT}' || (1 + n % {size.accounts}), 'filled', '',
            {dialect.random_bytes}, 1, n
        FROM {dialect.numbers.format(most=size.keys)}
    """
    return [accounts, keys]


def _metering(size: Size, dialect: _Dialect) -> list[str]:
    grants = f"""
        INSERT INTO ledger (kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos, loss_nanos,
            external_nanos, key_id, class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens,
            completion_tokens)
        SELECT 'grant', 'filled' || n, '{ACCOUNT}' || n, {GRANT_NANOS}, {HOUR}, 0, 0,
            -{GRANT_NANOS}, '', '', 0, 0, 0, 0, 0,
            0
        FROM {dialect.numbers.format(most=size.accounts)}
    """
    balances = f"""
        INSERT INTO accounts (account_id, balance_nanos, held_nanos)
        SELECT account_id, sum(customer_nanos), 0 FROM ledger WHERE account_id LIKE '{ACCOUNT}%' GROUP BY account_id
    """
    return [grants, *(_chats(size, dialect) if size.chats else ()), balances]


def _closed_months(size: Size, dialect: _Dialect) -> list[str]:
    """Chats of past months, each in the first hour of its month, in the order of time."""
    months = past_months(size.months)
    partitions: list[str] = []
    if dialect is _POSTGRESQL:
        # As if there had always been partitions. The first one has what was booked since the tables were created.
        bounds = f"FROM ({months[-1].ends_us}) TO ({months[-1].next.ends_us})"
        names = [f"ledger_{str(month).replace('-', '_')}" for month in months]
        partitions = [
            f"ALTER TABLE ledger DETACH PARTITION {FIRST_PARTITION}",
            *(
                f"CREATE TABLE {name} PARTITION OF ledger (PRIMARY KEY (entry_id), UNIQUE (kind, request_id))"
                f" FOR VALUES FROM ({month.start_us}) TO ({month.ends_us})"
                for name, month in zip(names, months, strict=True)
            ),
            f"ALTER TABLE ledger ATTACH PARTITION {FIRST_PARTITION} FOR VALUES {bounds}",
        ]
    cost_nanos = read_prices(PRICES).current[CLASS].cost_nanos(USAGE)
    a_month = size.chats // size.months
    account = f"'{ACCOUNT}' || (1 + n % {size.accounts})"
    key = f"'key_filled' || (1 + n % {size.accounts})"
    columns = """entry_id, kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos, loss_nanos,
        external_nanos, key_id, class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens,
        completion_tokens, basis, "end\""""
    filled: list[str] = []
    for number, month in enumerate(months):
        if number == 0:
            filled.append(f"""
                INSERT INTO ledger ({columns})
                SELECT n, 'grant', 'filled' || n, '{ACCOUNT}' || n, {GRANT_NANOS}, {month.start_us}, 0, 0,
                    -{GRANT_NANOS}, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL
                FROM {dialect.numbers.format(most=size.accounts)}
            """)
        filled.append(f"""
            INSERT INTO ledger ({columns})
            SELECT n + {size.accounts + number * a_month}, 'charge', '{month}-' || n, {account},
                -{cost_nanos}, {month.start_us} + n % 3000000000,
                {cost_nanos}, 0, 0, {key}, '{CLASS}', 1, {month.start_us}, 1, {USAGE.prompt_tokens}, 0,
                {USAGE.completion_tokens}, 'provider', 'complete'
            FROM {dialect.numbers.format(most=a_month)}
        """)
    balances = f"""
        INSERT INTO accounts (account_id, balance_nanos, held_nanos)
        SELECT account_id, sum(customer_nanos), 0 FROM ledger WHERE account_id LIKE '{ACCOUNT}%' GROUP BY account_id
    """
    return [*partitions, *_move_behind(size.ledger_rows, dialect), *filled, _COUNTERS, balances]


def _move_behind(last_id: int, dialect: _Dialect) -> list[str]:
    """Gives what was booked already higher ids: later entries have those."""
    move = f"UPDATE ledger SET entry_id = entry_id + {last_id}"
    if dialect is _SQLITE:
        return ["DROP TRIGGER ledger_refuses_update", move]
    return [
        "SET LOCAL session_replication_role = replica",
        move,
        "SET LOCAL session_replication_role = origin",
        f"SELECT setval('ledger_entry_id_seq', nextval('ledger_entry_id_seq') + {last_id})",
    ]


def _chats(size: Size, dialect: _Dialect) -> list[str]:
    cost_nanos = read_prices(PRICES).current[CLASS].cost_nanos(USAGE)
    holds = f"""
        INSERT INTO holds (request_id, account_id, key_id,
            class_id, state, amount_nanos, price_version, prompt_tokens, cached_tokens, completion_tokens,
            charged_nanos, loss_nanos, loss_bound_nanos, basis, "end", counted_hour_us, reserved_at_us, resolved_at_us)
        SELECT {dialect.request_id}, '{ACCOUNT}' || (1 + n % {size.accounts}), 'key_filled' || (1 + n % {size.keys}),
            '{CLASS}', 'settled', 0, 1, {USAGE.prompt_tokens}, 0, {USAGE.completion_tokens},
            {cost_nanos}, 0, 0, 'provider', 'complete', {HOUR}, {HOUR}, {HOUR}
        FROM {dialect.numbers.format(most=size.chats)}
    """
    charges = f"""
        INSERT INTO ledger (kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos, loss_nanos,
            external_nanos, key_id, class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens,
            completion_tokens, basis, "end")
        SELECT 'charge', request_id, account_id, -charged_nanos, resolved_at_us, charged_nanos, 0,
            0, key_id, class_id, price_version, counted_hour_us, 1, prompt_tokens, cached_tokens,
            completion_tokens, basis, "end"
        FROM holds WHERE account_id LIKE '{ACCOUNT}%'
    """
    return [holds, charges, _COUNTERS]


_COUNTERS: Final = f"""
        INSERT INTO usage_hours (account_id, hour_us, key_id, class_id, requests, prompt_tokens, cached_tokens,
            completion_tokens, cost_nanos, loss_nanos)
        SELECT account_id, hour_us, key_id, class_id, sum(requests), sum(prompt_tokens), sum(cached_tokens),
            sum(completion_tokens), -sum(customer_nanos), sum(loss_nanos)
        FROM ledger WHERE kind = 'charge' AND account_id LIKE '{ACCOUNT}%'
        GROUP BY account_id, hour_us, key_id, class_id
    """
