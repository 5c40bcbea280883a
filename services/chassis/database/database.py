"""A service's own database: one SQLite file, or one schema in PostgreSQL.

Access is synchronous and runs in the database's own threads, so that cancelling a caller never interrupts a
transaction. One thread writes; a small pool of threads reads.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from services.chassis.database import schema_version
from services.chassis.database.advisory_lock import OnWait
from services.chassis.database.engine import READERS, make_engine
from services.chassis.database.hang_watch import HangWatch
from services.chassis.database.migrations import Migrations
from services.chassis.database.outages import DatabaseFull, SchemaTooNew, TranslatedOutages
from services.chassis.database.worker import Worker
from services.chassis.settings import SettingsError

ResultT = TypeVar("ResultT")
P = ParamSpec("P")


class Database:
    def __init__(self, url: str | sa.URL, schema: str) -> None:
        """Opens sqlite:///FILE or postgresql://… as `url`; `schema` holds the service's tables in PostgreSQL."""
        self.schema = schema
        self.engine = make_engine(url, schema)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._hang_watch = HangWatch(self.engine)
        self._read_outages = TranslatedOutages(self.engine, self._hang_watch.began_s, writes=False)
        self._write_outages = TranslatedOutages(self.engine, self._hang_watch.began_s, writes=True)
        self._migrations = Migrations(self.engine, schema, self._read_outages, self._write_outages)
        self._writer = Worker(f"{schema}-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix=f"{schema}-read")
        # The writer's own connection, kept between writes: a pooled one would be pinged before each.
        self._writing: sa.Connection | None = None
        # The connection of reads in place.
        self._looking: sa.Connection | None = None
        # Is told, in the writer's thread, that the disk is full, or has room again.
        self.on_full: Callable[[bool], None] | None = None
        self._is_full = False
        # The last of the process's own scripts, once it was compared with the schema's.
        self._own_revision = ""

    @property
    def title(self) -> str:
        """Names the store for the operator."""
        return f"{self.schema}.db" if self.is_sqlite else "the PostgreSQL server"

    def write(
        self, change: Callable[Concatenate[sa.Connection, P], ResultT], *arguments: P.args, **named: P.kwargs
    ) -> "asyncio.Future[ResultT]":
        """Runs `change` with a connection and the arguments in one transaction; writes run one at a time, in the order
        of the calls."""
        self._hang_watch.start()
        return self._writer.run(self._write, lambda connection: change(connection, *arguments, **named), None)

    def write_unless_locked(
        self, change: Callable[[sa.Connection], ResultT], lock_timeout_s: float
    ) -> "asyncio.Future[ResultT]":
        """Runs `change` with a connection in one transaction, in the order of all writes. In PostgreSQL it waits at
        most `lock_timeout_s` for each locked row, and then raises LockTimeout."""
        self._hang_watch.start()
        return self._writer.run(self._write, change, lock_timeout_s)

    async def read(
        self, look: Callable[Concatenate[sa.Connection, P], ResultT], *arguments: P.args, **named: P.kwargs
    ) -> ResultT:
        """Runs `look` with a connection and the arguments on one snapshot of the database."""

        def read() -> ResultT:
            with self._read_outages, self.transaction(writes=False) as connection:
                return look(connection, *arguments, **named)

        self._hang_watch.start()
        return await asyncio.get_running_loop().run_in_executor(self._readers, read)

    async def read_in_place(
        self, look: Callable[Concatenate[sa.Connection, P], ResultT], *arguments: P.args, **named: P.kwargs
    ) -> ResultT:
        """Runs `look` on one snapshot of the database, in the caller's own thread where that is SQLite. It is for
        queries of microseconds that an idle process repeats: changing threads would cost more."""
        if self.is_sqlite:
            # If it is busy or fails, a reader waits, and knows how to report it.
            with contextlib.suppress(Exception):
                return self._look_in_place(lambda connection: look(connection, *arguments, **named))
        return await self.read(look, *arguments, **named)

    def _look_in_place(self, look: Callable[[sa.Connection], ResultT]) -> ResultT:
        if self._looking is None:
            self._looking = self.engine.connect()
            self._looking.connection.cursor().execute("PRAGMA busy_timeout=0")
        try:
            self._begin(self._looking, writes=False)
            result = look(self._looking)
            self._looking.connection.commit()
            # SQLAlchemy does not know yet that the transaction is over.
            self._looking.commit()
        except BaseException:
            self._drop_looking_connection()
            raise
        return result

    def _drop_looking_connection(self) -> None:
        connection, self._looking = self._looking, None
        _close(connection)

    def _write(self, change: Callable[[sa.Connection], ResultT], lock_timeout_s: float | None) -> ResultT:
        try:
            result = self._write_in_transaction(change, lock_timeout_s)
        except DatabaseFull:
            self._record_full(is_full=True)
            raise
        if self._is_full:
            self._record_full(is_full=False)
        return result

    def _record_full(self, *, is_full: bool) -> None:
        self._is_full = is_full
        if self.on_full is not None:
            self.on_full(is_full)

    def _write_in_transaction(
        self, change: Callable[[sa.Connection], ResultT], lock_timeout_s: float | None
    ) -> ResultT:
        with self._write_outages:
            connection = self._begin_write(lock_timeout_s)
            try:
                result = change(connection)
                connection.connection.commit()
            except BaseException:
                self._drop_write_connection()
                raise
            if connection.in_transaction():
                # SQLAlchemy was used as well, and does not know yet that the transaction is over.
                connection.commit()
            return result

    def _begin_write(self, lock_timeout_s: float | None) -> sa.Connection:
        if self._writing is not None:
            try:
                self._begin(self._writing, writes=True, lock_timeout_s=lock_timeout_s)
                return self._writing
            except Exception:
                self._drop_write_connection()
                if self.is_sqlite:
                    raise
                # The connection was lost meanwhile; the server may be back.
        self._writing = self.engine.connect()
        self._begin(self._writing, writes=True, lock_timeout_s=lock_timeout_s)
        return self._writing

    def _drop_write_connection(self) -> None:
        connection, self._writing = self._writing, None
        _close(connection)

    def _begin(self, connection: sa.Connection, *, writes: bool, lock_timeout_s: float | None = None) -> None:
        if self.is_sqlite:
            # A writer takes its lock before it reads, so that what it read stays true.
            begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        elif writes:
            # Writers look rows up by key, but a plan cached while a table was empty would scan the full one. Triggers
            # tell by `legato.writer` processes that look at the schema's version from those that never do.
            begin = "SELECT set_config('enable_seqscan', 'off', true), set_config('legato.writer', 'on', true)"
            if lock_timeout_s is not None:
                # In milliseconds; 0 would disable it.
                begin += f", set_config('lock_timeout', '{max(1, round(lock_timeout_s * 1000))}', true)"
            if self._own_revision:
                begin += f", ({schema_version.OLDEST_QUERY})"
        else:
            begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
        driver: Any = connection.connection
        cursor = driver.cursor()
        if self.is_sqlite:
            cursor.execute(begin)
        else:
            with driver.driver_connection.pipeline():
                # In one round trip with the driver's BEGIN.
                cursor.execute(begin)
        if writes and self._own_revision:
            if self.is_sqlite:
                cursor.execute(schema_version.OLDEST_QUERY)
            # A newer release may have migrated the schema since this process has started.
            if cursor.fetchone()[-1] > self._own_revision:
                driver.rollback()
                raise SchemaTooNew(self.schema)

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[sa.Connection]:
        """Opens a transaction in the caller's own thread, for migrations and tests."""
        with self.engine.connect() as connection:
            try:
                self._begin(connection, writes=writes)
                yield connection
                connection.connection.commit()
            except BaseException:
                _give_up(connection)
                raise

    def prepare(self, folder: Path, *, migrates: bool, on_wait: OnWait = lambda reason: None) -> None:
        """Prepares the schema at startup; it `migrates` unless `legato migrate` is used for that. From then on writes
        are refused once a newer release has made the schema too new for this one."""
        if migrates:
            self.migrate(folder, on_wait)
        else:
            self.require_migrated(folder)
        self._own_revision = schema_version.revisions_of(folder)[-1]

    def migrate(self, folder: Path, on_wait: OnWait = lambda reason: None) -> None:
        """Migrates the schema with the Alembic scripts in `folder`. Replicas that start at the same time take turns;
        `on_wait` is told the reason before it waits."""
        self._migrations.run(folder, on_wait)

    def require_migrated(self, folder: Path) -> None:
        """Raises if the schema is behind the scripts in `folder`, where `legato migrate` runs them."""
        self._migrations.require(folder)

    def read_version(self) -> schema_version.SchemaVersion | None:
        return self._migrations.read_version()

    def close(self) -> None:
        """Closes connections when running transactions end."""
        self._hang_watch.stop()
        self._writer.close()
        self._drop_write_connection()
        self._drop_looking_connection()
        self._readers.shutdown()
        self.engine.dispose()


def _close(connection: sa.Connection | None) -> None:
    if connection is not None:
        _give_up(connection)
        connection.close()


def _give_up(connection: sa.Connection) -> None:
    """Rolls back and discards a connection, so that no open transaction (as on a full disk) is reused."""
    with contextlib.suppress(Exception):
        # SQLite keeps its lock while an unfinished cursor exists.
        connection.connection.rollback()
    connection.invalidate()


def open_database(service: str, url: str, data: Path) -> Database:
    """Opens PostgreSQL at `url`, in the service's own schema; without one, the service's SQLite file in `data`."""
    if not url:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not a URL string: the path may contain characters that are special in one.
        return Database(sa.URL.create("sqlite", database=str(data / f"{service}.db")), service)
    if not url.startswith("postgres"):
        raise SettingsError("LEGATO_DATABASE_URL must be a PostgreSQL address: SQLite files are kept in LEGATO_DATA")
    return Database(url.replace("postgres://", "postgresql://", 1), service)
