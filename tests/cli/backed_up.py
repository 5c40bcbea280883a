"""An installation with an account, a key and credit, on SQLite or PostgreSQL, for tests of its backups."""

import asyncio
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from cli.main import legato
from services.auth.core.peppers import parse_peppers
from services.auth.keys.store.epochs import record_peppers
from services.chassis.database.database import Database, open_database
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.store.prices import adopt_prices
from tests.services.metering.samples import LIFE_S, PRICES, ask_each, grant
from tests.support.servers.migrated import migrated_sqlite

SERVICES = Path(__file__).parents[2] / "services"
NAMES = ("auth", "metering", "router")
PEPPERS = "1:" + "ab" * 32
BALANCE_NANOS = 7_000

ACCOUNT = "INSERT INTO accounts (account_id, name, created_at_us, preferred_class) VALUES ('{}', 'Ada', 1, 'mezzo')"
KEY = (
    "INSERT INTO api_keys (key_id, account_id, name, scopes, digest, pepper_version, created_at_us)"
    " VALUES ('key_1', 'acct_1', '', '', '', 1, 1)"
)


def migrate_all(url: str, data: Path) -> None:
    for name in NAMES:
        if url:
            database = open_database(name, url, data)
            database.migrate(SERVICES / name / "migrations")
            database.close()
        else:
            migrated_sqlite(data / f"{name}.db", name, SERVICES / name / "migrations")


@dataclass
class BackedUp:
    """`url` is empty on SQLite; `programs` has PostgreSQL's own."""

    data: Path
    url: str
    programs: str

    def fill(self, log: Log) -> None:
        with ExitStack() as stack:
            auth, metering = self.open("auth", stack), self.open("metering", stack)
            with auth.transaction(writes=True) as connection:
                connection.exec_driver_sql(ACCOUNT.format("acct_1"))
                connection.exec_driver_sql(KEY)
                record_peppers(connection, parse_peppers(PEPPERS).fingerprints)
            with metering.transaction(writes=True) as connection:
                prices = adopt_prices(connection, PRICES)
            asyncio.run(ask_each(Writer(metering, prices, LIFE_S, log), grant(BALANCE_NANOS)))

    def add_account(self, account_id: str) -> None:
        with ExitStack() as stack, self.open("auth", stack).transaction(writes=True) as connection:
            connection.exec_driver_sql(ACCOUNT.format(account_id))

    def open(self, service: str, stack: ExitStack) -> Database:
        database = open_database(service, self.url, self.data)
        stack.callback(database.close)
        return database

    def ask(self, service: str, query: str) -> list[tuple[Any, ...]]:
        with ExitStack() as stack, self.open(service, stack).transaction(writes=False) as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    def accounts(self) -> list[str]:
        return [account_id for (account_id,) in self.ask("auth", "SELECT account_id FROM accounts ORDER BY 1")]

    def run(self, *arguments: str, **environ: str) -> tuple[int, str]:
        """Returns the exit code, and what was said."""
        given = {
            "LEGATO_DATABASE_URL": self.url,
            "LEGATO_KEY_PEPPERS": PEPPERS,
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            **environ,
        }
        done = CliRunner().invoke(legato, [*arguments, "--json", "--data", str(self.data)], env=given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout or done.stderr

    def json(self, *arguments: str, **environ: str) -> Any:
        code, said = self.run(*arguments, **environ)
        assert code == 0, said
        return json.loads(said)
