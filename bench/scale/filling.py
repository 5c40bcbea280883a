"""Writes millions of accounts, keys and past chats directly to the databases, as if the service had served them.

The database derives everything that the audit compares from the holds. The service must not be running.
"""

import asyncio
import io
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.targets import CLASS, PRICES
from services.chassis.database.database import Database, open_database
from services.chassis.telemetry.log import Log
from services.metering.credit.calendar import CalendarMonth, month_of
from services.metering.credit.prices import read_prices
from services.metering.credit.records import HOUR_US
from services.metering.months.passes import Retention
from services.metering.months.store.partitions import FIRST_PARTITION, create_partition
from services.metering.settings import MeteringSettings
from services.rules.usage import Usage

USAGE: Final = Usage(prompt_tokens=50, completion_tokens=45)
GRANT_NANOS: Final = 10**12
# Any hour in the past.
HOUR: Final = 490_000 * HOUR_US
# The prefix of everything that is created here.
ACCOUNT: Final = "acct_filled"
# Months that PostgreSQL writes at the same time.
FILLERS: Final = 2
OPEN_TABLES: Final = ("accounts", "holds", "usage_hours", "closings", "account_closings")


class Size(NamedTuple):
    name: str
    accounts: int
    keys: int
    # A grant for each account; all other rows are chats.
    ledger_rows: int
    # So many months before this one have the chats, and are closed; their holds were pruned. 0: all chats were in one
    # hour, and nothing is closed.
    months: int = 0
    # Further chats, of this month; only after closed ones.
    open_rows: int = 0

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
    request_id="printf('%032d', {number})",
    random_id="lower(hex(randomblob(8)))",
    random_bytes="randomblob(32)",
    afterwards=("PRAGMA wal_checkpoint(TRUNCATE)",),
)
_POSTGRESQL: Final = _Dialect(
    numbers="generate_series(1, {most}) AS numbers(n)",
    request_id="lpad(({number})::text, 32, '0')",
    random_id="substr(md5(random()::text), 1, 16)",
    random_bytes="sha256(random()::text::bytea)",
    afterwards=("VACUUM ANALYZE", "CHECKPOINT"),
)


def fill(size: Size, data: Path, database_url: str) -> None:
    dialect = _POSTGRESQL if database_url else _SQLITE
    auth = open_database("auth", database_url, data)
    try:
        _run(auth, _auth(size, dialect), dialect)
    finally:
        auth.close()
    metering = open_database("metering", database_url, data)
    try:
        if size.months:
            _fill_months(metering, size, dialect)
        else:
            _run(metering, _metering(size, dialect), dialect)
    finally:
        metering.close()


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
        if not database.is_sqlite:
            driver.autocommit = False


def past_months(count: int) -> list[CalendarMonth]:
    """Returns the months before this one, the oldest first."""
    months = [month_of(round(time.time()) * 1_000_000).previous]
    while len(months) < count:
        months.append(months[-1].previous)
    return months[::-1]


def _fill_months(database: Database, size: Size, dialect: _Dialect) -> None:
    """Writes chats of past months, each in the first hour of its month and in the order of time, and closes them."""
    _run(database, _prepare_months(size, dialect), dialect._replace(afterwards=()))
    months = past_months(size.months)
    retention = Retention(database, MeteringSettings(), Log("filling", io.StringIO()), pause_s=0, read_most=5_000)
    with ThreadPoolExecutor(FILLERS) as fillers:

        def begin(number: int) -> Future[None]:
            return fillers.submit(_fill_month, database, size, number, months[number])

        # PostgreSQL fills the next months while one is closed. SQLite has one writer, for which closing would wait.
        filled = [] if database.is_sqlite else [begin(number) for number in range(len(months))]
        for number, month in enumerate(months):
            (begin(number) if database.is_sqlite else filled[number]).result()
            # Without an audit: it would miss the holds that were pruned.
            asyncio.run(retention.close_month(month))
    # Closed months are not read any more, and need no statistics.
    analyze = tuple(f"VACUUM ANALYZE {table}" for table in (FIRST_PARTITION, *OPEN_TABLES))
    afterwards = dialect.afterwards if database.is_sqlite else (*analyze, "CHECKPOINT")
    _run(database, _after_closings(size, months[-1], dialect), dialect._replace(afterwards=afterwards))


def _prepare_months(size: Size, dialect: _Dialect) -> list[str]:
    """Gives what was booked already higher ids, as later entries have those. In PostgreSQL, it is as if there had
    always been partitions: the first one has this month."""
    last_id = size.ledger_rows + size.open_rows
    move = f"UPDATE ledger SET entry_id = entry_id + {last_id}"
    if dialect is _SQLITE:
        return ["DROP TRIGGER ledger_refuses_update", move]
    this_month = past_months(1)[0].next
    bounds = f"FROM ({this_month.start_us}) TO ({this_month.ends_us})"
    return [
        "SET LOCAL session_replication_role = replica",
        move,
        "SET LOCAL session_replication_role = origin",
        f"SELECT setval('ledger_entry_id_seq', nextval('ledger_entry_id_seq') + {last_id})",
        f"ALTER TABLE ledger DETACH PARTITION {FIRST_PARTITION}",
        f"ALTER TABLE ledger ATTACH PARTITION {FIRST_PARTITION} FOR VALUES {bounds}",
    ]


def _fill_month(database: Database, size: Size, number: int, month: CalendarMonth) -> None:
    a_month = size.chats // size.months
    # The last one has what is left.
    chats = a_month if number + 1 < size.months else size.chats - number * a_month

    def fill_table(name: str) -> None:
        for statement in (
            *(_grants(size, month, name) if number == 0 else ()),
            _charges(size, month, name, size.accounts + number * a_month, chats, database.is_sqlite),
        ):
            driver.execute(statement)

    with database.transaction(writes=True) as connection:
        # SQLAlchemy would take a percent sign for a parameter.
        driver: Any = connection.connection.driver_connection
        if database.is_sqlite:
            # Large trees are written in random order: with a smaller cache every row would be read from disk.
            connection.exec_driver_sql("PRAGMA cache_size = -500000")
            fill_table("ledger")
        else:
            connection.exec_driver_sql("SET LOCAL maintenance_work_mem = '256MB'")
            connection.exec_driver_sql("SET LOCAL max_parallel_maintenance_workers = 0")
            create_partition(connection, month, fill_table)


_MONTH_COLUMNS: Final = """entry_id, kind, request_id, account_id, customer_nanos, recorded_at_us, revenue_nanos,
    loss_nanos, external_nanos, key_id, class_id, price_version, hour_us, requests, prompt_tokens, cached_tokens,
    completion_tokens, basis, "end\""""


def _grants(size: Size, month: CalendarMonth, table: str) -> list[str]:
    numbers = (_SQLITE if table == "ledger" else _POSTGRESQL).numbers.format(most=size.accounts)
    return [
        f"""
        INSERT INTO {table} ({_MONTH_COLUMNS})
        SELECT n, 'grant', 'filled' || n, '{ACCOUNT}' || n, {GRANT_NANOS}, {month.start_us}, 0, 0,
            -{GRANT_NANOS}, '', '', 0, 0, 0, 0, 0, 0, NULL, NULL
        FROM {numbers}
        """
    ]


def _charges(size: Size, month: CalendarMonth, table: str, after_id: int, chats: int, is_sqlite: bool) -> str:
    """Builds an INSERT of chats in turns of all accounts, whose names are made once."""
    dialect = _SQLITE if is_sqlite else _POSTGRESQL
    cost_nanos = read_prices(PRICES).current[CLASS].cost_nanos(USAGE)
    turns = dialect.numbers.format(most=-(-chats // size.accounts))
    accounts = dialect.numbers.format(most=size.accounts)
    entry_id = f"({after_id} + (turns.n - 1) * {size.accounts} + named.number)"
    return f"""
        INSERT INTO {table} ({_MONTH_COLUMNS})
        SELECT {entry_id}, 'charge', {dialect.request_id.format(number=entry_id)},
            account_id, -{cost_nanos}, {month.start_us} + {entry_id} % 3000000000,
            {cost_nanos}, 0, 0, key_id, '{CLASS}', 1, {month.start_us}, 1, {USAGE.prompt_tokens}, 0,
            {USAGE.completion_tokens}, 'provider', 'complete'
        FROM (SELECT n FROM {turns}) AS turns CROSS JOIN (
            SELECT n AS number, '{ACCOUNT}' || n AS account_id, 'key_filled' || n AS key_id FROM {accounts}
            ORDER BY n LIMIT {size.accounts}
        ) AS named
        WHERE (turns.n - 1) * {size.accounts} + named.number <= {chats}
    """


def _after_closings(size: Size, last: CalendarMonth, dialect: _Dialect) -> list[str]:
    """Takes the counters of closed months and the balances from the closings, and writes the chats of this month."""
    month = last.next
    key_id = f"replace(account_id, '{ACCOUNT}', 'key_filled')"
    statements = [
        f"""
        INSERT INTO usage_hours (account_id, hour_us, key_id, class_id, requests, prompt_tokens, cached_tokens,
            completion_tokens, cost_nanos, loss_nanos)
        SELECT account_id, month_us, {key_id}, '{CLASS}', requests, prompt_tokens, cached_tokens,
            completion_tokens, charged_nanos, loss_nanos
        FROM account_closings WHERE requests > 0
        """
    ]
    last_id = size.ledger_rows + size.open_rows
    is_filled = f"recorded_at_us >= {month.start_us} AND entry_id BETWEEN {size.ledger_rows + 1} AND {last_id}"
    if size.open_rows:
        statements += [
            _charges(size, month, "ledger", size.ledger_rows, size.open_rows, dialect is _SQLITE),
            f"""
            INSERT INTO holds (request_id, account_id, key_id, class_id, state, amount_nanos, price_version,
                prompt_tokens, cached_tokens, completion_tokens, charged_nanos, loss_nanos, loss_bound_nanos, basis,
                "end", counted_hour_us, reserved_at_us, resolved_at_us)
            SELECT request_id, account_id, key_id, class_id, 'settled', 0, price_version,
                prompt_tokens, cached_tokens, completion_tokens, -customer_nanos, 0, 0, basis,
                "end", hour_us, recorded_at_us, recorded_at_us
            FROM ledger WHERE {is_filled} ORDER BY entry_id
            """,
            _COUNTERS.replace("WHERE", f"WHERE {is_filled} AND"),
        ]
    statements.append(f"""
        INSERT INTO accounts (account_id, balance_nanos, held_nanos)
        SELECT closed.account_id, closed.balance_nanos - coalesce(spent.nanos, 0), 0
        FROM account_closings AS closed LEFT JOIN (
            SELECT account_id, sum(cost_nanos) AS nanos FROM usage_hours WHERE hour_us >= {month.start_us}
            GROUP BY account_id
        ) AS spent ON spent.account_id = closed.account_id
        WHERE closed.month_us = {last.start_us}
    """)
    return statements


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


def _chats(size: Size, dialect: _Dialect) -> list[str]:
    cost_nanos = read_prices(PRICES).current[CLASS].cost_nanos(USAGE)
    holds = f"""
        INSERT INTO holds (request_id, account_id, key_id,
            class_id, state, amount_nanos, price_version, prompt_tokens, cached_tokens, completion_tokens,
            charged_nanos, loss_nanos, loss_bound_nanos, basis, "end", counted_hour_us, reserved_at_us, resolved_at_us)
        SELECT {dialect.request_id.format(number="n")},
            '{ACCOUNT}' || (1 + n % {size.accounts}), 'key_filled' || (1 + n % {size.keys}),
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
