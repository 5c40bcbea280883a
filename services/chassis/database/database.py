"""A service's own database: one SQLite file, or one schema in PostgreSQL.

Access is synchronous and runs in the database's own threads, so that cancelling a caller never interrupts a
transaction. One thread writes; a small pool of threads reads.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from services.chassis.database import schema_version
from services.chassis.database.advisory_lock import OnWait, take_lock
from services.chassis.database.concurrent_indexes import build_concurrently
from services.chassis.database.engine import READERS, make_engine
from services.chassis.database.hang_watch import HangWatch
from services.chassis.database.worker import Worker
from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError

ResultT = TypeVar("ResultT")
P = ParamSpec("P")

# PostgreSQL's SQLSTATE codes; the last two are timeouts, of an idle transaction and of a long one.
READ_ONLY = "25006"
NOT_PERMITTED = "42501"
LOCKED = "55P03"
ENDED_BY_THE_SERVER = frozenset({"25P03", "25P04"})
# How long a migration makes others wait for a table that it waits for itself, and how long it then lets them go first.
LOCK_TIMEOUT_S = 1
LOCK_PAUSE_S = 2.0
DISK_FULL = "53100"
# SQLite's codes SQLITE_CORRUPT and SQLITE_NOTADB.
SQLITE_DAMAGE = frozenset({11, 26})
# SQLITE_FULL; and SQLITE_IOERR, as which a part of the failures on a full disk are reported.
SQLITE_FULL, SQLITE_IO_ERROR = 13, 10
# A disk with less is as good as full: SQLite writes pages of 4 KiB, and enlarges its shared memory by 32 KiB.
LEAST_ROOM_BYTES = 32 * 1024


class DatabaseUnavailable(LegatoError):
    """The database cannot be reached or written: callers may retry."""

    def __init__(
        self,
        message: str = "The database is not available right now. Please retry.",
        figures: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(Reason.UNAVAILABLE, message, retry_after_s=1, figures=figures)


class DatabaseFull(DatabaseUnavailable):
    """The disk of the database is full."""


class LockTimeout(DatabaseUnavailable):
    """Another transaction has held a row lock for longer than the lock timeout."""


class DatabaseDamaged(DatabaseUnavailable):
    """The file is no database, or a damaged one. Clients only learn that it is unavailable; the exception's note is for
    the operator."""

    def __init__(self, file: str | None, reason: str) -> None:
        super().__init__()
        self.add_note(
            f"the database {file} is damaged ({reason}): stop the service, keep a copy of the file, and restore it "
            "from a backup (docs/runbooks/restore-the-database.md)"
        )


class SchemaTooNew(DatabaseUnavailable):
    """A newer release has migrated the schema, and this one would leave wrong rows in it."""

    def __init__(self, schema: str, release: str = "") -> None:
        super().__init__()
        by = f" by Legato {release}" if release else ""
        self.add_note(
            f"the schema {schema} was migrated{by} and is too new for this process: start the newer release, or "
            "restore a backup (docs/upgrade.md)"
        )


class SchemaUnknown(DatabaseUnavailable):
    """A version between two releases has migrated the schema, by a script that is not there any more."""

    def __init__(self, schema: str, revision: str) -> None:
        super().__init__()
        self.add_note(
            f"the schema {schema} has revision {revision} of a development version: migrate it with the last version "
            "that has its script, or restore a backup (docs/upgrade.md)"
        )


@contextmanager
def _outage_reasons(schema: str) -> Iterator[None]:
    """Re-raises outages, missing permissions and failures of scripts with the driver's reason, for the operator."""
    try:
        yield
    except (DatabaseDamaged, SchemaTooNew, SchemaUnknown):
        raise
    except (DatabaseUnavailable, sa.exc.ProgrammingError) as error:
        told = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
        # The driver's message has no password in it; lines after the first are advice.
        original = getattr(told, "orig", told)
        reason = str(original).partition("\n")[0]
        is_outage = isinstance(error, DatabaseUnavailable) or getattr(original, "sqlstate", None) == NOT_PERMITTED
        what = (
            "the database cannot be reached or written (LEGATO_DATABASE_URL, LEGATO_DATA)"
            if is_outage
            else f"the schema {schema} cannot be migrated, and was left as it was"
        )
        raise DatabaseUnavailable(f"{what}: {reason}") from None


class _TranslatedOutages:
    """Translates outages in its block to `DatabaseUnavailable`, including errors of the driver's own cursor. It has no
    state besides what runs in each thread, so that every transaction can use the same one."""

    def __init__(self, engine: sa.Engine, began_s: dict[int, float], *, writes: bool) -> None:
        """Records in `began_s` when the transaction of a thread began, while it runs."""
        self._driver: Any = engine.dialect.loaded_dbapi
        self._file = engine.url.database
        self._began_s = began_s
        self._writes = writes

    def __enter__(self) -> None:
        self._began_s[get_ident()] = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._began_s.pop(get_ident(), None)
        if error is not None and (outage := self._outage_of(error)) is not None:
            raise outage from error

    def _outage_of(self, error: BaseException) -> DatabaseUnavailable | None:
        driver, told = self._driver, getattr(error, "orig", error)
        state = getattr(told, "sqlstate", None)
        if isinstance(error, sa.exc.TimeoutError) or isinstance(told, (driver.OperationalError, driver.InterfaceError)):
            if state == DISK_FULL or self._is_file_full(told):
                return DatabaseFull()
            return LockTimeout() if state == LOCKED else DatabaseUnavailable()
        if isinstance(told, driver.InternalError):
            # A read-only server is a standby that has not been promoted yet.
            is_outage = state in ENDED_BY_THE_SERVER or (self._writes and state == READ_ONLY)
            return DatabaseUnavailable() if is_outage else None
        if getattr(told, "sqlite_errorcode", 0) & 0xFF in SQLITE_DAMAGE:
            return DatabaseDamaged(self._file, str(told))
        return None

    def _is_file_full(self, told: BaseException) -> bool:
        code = getattr(told, "sqlite_errorcode", 0) & 0xFF
        if code != SQLITE_IO_ERROR or self._file is None:
            return code == SQLITE_FULL
        with contextlib.suppress(OSError):
            disk = os.statvfs(Path(self._file).parent)
            return disk.f_bavail * disk.f_frsize < LEAST_ROOM_BYTES
        return False


class Database:
    def __init__(self, url: str | sa.URL, schema: str) -> None:
        """Opens sqlite:///FILE or postgresql://… as `url`; `schema` holds the service's tables in PostgreSQL."""
        self.schema = schema
        self.engine = make_engine(url, schema)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self._hang_watch = HangWatch(self.engine)
        self._read_outages = _TranslatedOutages(self.engine, self._hang_watch.began_s, writes=False)
        self._write_outages = _TranslatedOutages(self.engine, self._hang_watch.began_s, writes=True)
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
            self._note_full(is_full=True)
            raise
        if self._is_full:
            self._note_full(is_full=False)
        return result

    def _note_full(self, *, is_full: bool) -> None:
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
        if not self._is_behind(folder):
            # The usual case: importing Alembic would keep some 10 MB in memory.
            return
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        scripts = [script.module for script in ScriptDirectory.from_config(config).walk_revisions()]
        if not self.is_sqlite:
            with _outage_reasons(self.schema), self._write_outages:
                indexes = [getattr(script, "BUILT_CONCURRENTLY", {}) for script in scripts]
                preparing = [
                    script.prepare_concurrently for script in scripts if hasattr(script, "prepare_concurrently")
                ]
                build_concurrently(self.engine, self.schema, indexes, preparing, on_wait)
        refusing = [script.revision for script in scripts if getattr(script, "REFUSES_OLDER", False)]
        with _outage_reasons(self.schema):
            while True:
                try:
                    self._run_scripts(folder, config, max(refusing, default=""), on_wait)
                    break
                except LockTimeout:
                    on_wait("others use its tables, such as an audit")
                    time.sleep(LOCK_PAUSE_S)

    def _run_scripts(self, folder: Path, config: Any, oldest: str, on_wait: OnWait) -> None:
        """Runs the scripts of Alembic's `config` in one transaction; raises LockTimeout if another is in the way."""
        from alembic import command

        with self._write_outages, self.engine.connect() as connection:
            if self.is_sqlite:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            else:
                take_lock(connection, "pg_try_advisory_xact_lock", f"legato:{self.schema}", on_wait)
                # Whatever needs a table waits behind a script that waits for it.
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")
                if not sa.inspect(connection).has_schema(self.schema):
                    # An existing schema does not require the permission to create one.
                    connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
            if self._is_behind_on(connection, folder):
                schema_version.prepare_table(connection)
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                schema_version.record(connection, oldest)
            connection.commit()

    def require_migrated(self, folder: Path) -> None:
        """Raises if the schema is behind the scripts in `folder`, where `legato migrate` runs them."""
        if self._is_behind(folder):
            raise DatabaseUnavailable(f"the schema {self.schema} is not up to date: run legato migrate")

    def read_version(self) -> schema_version.SchemaVersion | None:
        with _outage_reasons(self.schema), self._read_outages, self.engine.connect() as connection:
            return schema_version.read_version(connection)

    def _is_behind(self, folder: Path) -> bool:
        with _outage_reasons(self.schema), self._read_outages, self.engine.connect() as connection:
            return self._is_behind_on(connection, folder)

    def _is_behind_on(self, connection: sa.Connection, folder: Path) -> bool:
        """Returns whether there are scripts that have not been run; raises if the schema is too new."""
        version, own = schema_version.read_version(connection), schema_version.revisions_of(folder)
        if version is not None and version.oldest > own[-1]:
            raise SchemaTooNew(self.schema, version.release)
        # A later revision is of a later release, which stays compatible while both run.
        if version is None or version.revision >= own[-1]:
            return version is None
        if version.revision not in own:
            # Scripts are merged before a release: no release has made this schema.
            raise SchemaUnknown(self.schema, version.revision)
        return True

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
