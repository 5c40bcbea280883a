"""Translates failures of a database: which of them are outages, and what callers and the operator are told.

Callers may retry an outage, and learn no more; the operator gets the driver's reason.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# PostgreSQL's SQLSTATE codes; the last two are timeouts, of an idle transaction and of a long one.
READ_ONLY = "25006"
NOT_PERMITTED = "42501"
LOCKED = "55P03"
DEADLOCK = "40P01"
ENDED_BY_THE_SERVER = frozenset({"25P03", "25P04"})
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
        sentence: Sentence | None = None,
        figures: Mapping[str, int] | None = None,
    ) -> None:
        sentence = sentence or Sentence("database_unavailable")
        super().__init__(Reason.UNAVAILABLE, sentence, retry_after_s=1, figures=figures)


class DatabaseFull(DatabaseUnavailable):
    """The disk of the database is full."""


class LockTimeout(DatabaseUnavailable):
    """Another transaction has held a row lock for longer than the lock timeout."""


class Deadlocked(DatabaseUnavailable):
    """The server has ended the transaction, because it and another waited for each other."""


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


_LOCK_FAILURES: Mapping[object, type[DatabaseUnavailable]] = {LOCKED: LockTimeout, DEADLOCK: Deadlocked}


@contextmanager
def outage_reasons(schema: str) -> Iterator[None]:
    """Re-raises outages, missing permissions and failures of scripts with the driver's reason, for the operator."""
    try:
        yield
    except (DatabaseDamaged, SchemaTooNew, SchemaUnknown):
        raise
    except (DatabaseUnavailable, sa.exc.ProgrammingError) as error:
        cause = error.__cause__ if isinstance(error, DatabaseUnavailable) else error
        # The driver's message has no password in it; lines after the first are advice.
        original = getattr(cause, "orig", cause)
        reason = str(original).partition("\n")[0]
        is_outage = isinstance(error, DatabaseUnavailable) or getattr(original, "sqlstate", None) == NOT_PERMITTED
        what = (
            "the database cannot be reached or written (LEGATO_DATABASE_URL, LEGATO_DATA)"
            if is_outage
            else f"the schema {schema} cannot be migrated, and was left as it was"
        )
        raise DatabaseUnavailable(Sentence.verbatim(f"{what}: {reason}")) from None


class TranslatedOutages:
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
        driver, cause = self._driver, getattr(error, "orig", error)
        state = getattr(cause, "sqlstate", None)
        if isinstance(error, sa.exc.TimeoutError) or isinstance(
            cause, (driver.OperationalError, driver.InterfaceError)
        ):
            if state == DISK_FULL or self._is_file_full(cause):
                return DatabaseFull()
            return _LOCK_FAILURES.get(state, DatabaseUnavailable)()
        if isinstance(cause, driver.InternalError):
            # A read-only server is a standby that has not been promoted yet.
            is_outage = state in ENDED_BY_THE_SERVER or (self._writes and state == READ_ONLY)
            return DatabaseUnavailable() if is_outage else None
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in SQLITE_DAMAGE:
            return DatabaseDamaged(self._file, str(cause))
        return None

    def _is_file_full(self, cause: BaseException) -> bool:
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code != SQLITE_IO_ERROR or self._file is None:
            return code == SQLITE_FULL
        with contextlib.suppress(OSError):
            disk = os.statvfs(Path(self._file).parent)
            return disk.f_bavail * disk.f_frsize < LEAST_ROOM_BYTES
        return False
