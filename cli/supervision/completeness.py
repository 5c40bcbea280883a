"""Detects missing parts of a data folder before anything is created in their place.

Accounts and keys, the ledger, and the secret that keys are hashed with belong together. If one of them is lost and
recreated, every key is unknown or every balance is zero, without an explanation.
"""

import contextlib
import json
import sqlite3
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

import click

from cli.supervision.data_folder import RESTORE_READY, write_private

PEPPERS: Final = "key-peppers"
# Each service's store, and a table that has a row once it is used.
STORES: Final = {"auth": "accounts", "metering": "ledger"}
PARTS: Final = (PEPPERS, *STORES)
# The parts that existed when the service last was ready, so that even the loss of several is noticed.
RECORD: Final = "installation.json"
CONNECT_TIMEOUT_S: Final = 5
RUNBOOK: Final = "docs/runbooks/restore-the-database.md"


class Incomplete(click.ClickException):
    """Says what is missing, and what to do: the one other message that may have several lines."""


class StoreState(Enum):
    ABSENT = "absent"
    EMPTY = "empty"
    USED = "used"
    # It cannot be reached: the service that starts next reports why.
    UNKNOWN = "unknown"


def require_complete(data: Path, database_url: str, *, peppers_given: bool, begin_anew: Collection[str] = ()) -> None:
    """Raises if a part is missing while others are in use. `begin_anew` names parts that may be created anew."""
    if not database_url and (data / RESTORE_READY).exists():
        raise Incomplete(f"a restore of {data} was interrupted: run `legato restore` again, which completes it")
    had = _recorded(data)
    stores = {
        name: _query(data, database_url, name, f"SELECT 1 FROM {table} LIMIT 1")[0]  # noqa: S608
        for name, table in STORES.items()
    }
    was_elsewhere = not database_url and had.get("database") == "postgresql"
    were_there = () if database_url else had.get("parts", ())
    missing = {
        name: _missing_store(data, database_url, name, was_elsewhere=was_elsewhere)
        for name, store in stores.items()
        if store is StoreState.ABSENT and (StoreState.USED in stores.values() or was_elsewhere or name in were_there)
    }
    # Without accounts there are no keys.
    needs_peppers = not peppers_given and (stores["auth"] is StoreState.USED or PEPPERS in had.get("parts", ()))
    if needs_peppers and not (data / PEPPERS).exists():
        missing[PEPPERS] = f"{data / PEPPERS} (the secret that keys are hashed with; without it no key works)"
    missing = {name: what for name, what in missing.items() if name not in begin_anew}
    if missing:
        raise Incomplete(_message(data, missing))


def next_pepper_version(data: Path, database_url: str) -> int:
    """Returns the first unused version: a new pepper must not pass for the one that is lost."""
    _, last = _query(data, database_url, "auth", "SELECT max(pepper_version) FROM api_keys")
    return int(last or 0) + 1


def record_parts(data: Path, database_url: str) -> None:
    """Records the parts once all processes serve."""
    parts = [PEPPERS] if (data / PEPPERS).exists() else []
    parts += [] if database_url else [name for name in STORES if _file(data, name).exists()]
    record = {"parts": parts, "database": "postgresql" if database_url else "sqlite"}
    if record != _recorded(data):
        write_private(data / RECORD, json.dumps(record) + "\n")


def _recorded(data: Path) -> Mapping[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        recorded = json.loads((data / RECORD).read_text())
        return recorded if isinstance(recorded, dict) else {}
    return {}


def _missing_store(data: Path, database_url: str, name: str, *, was_elsewhere: bool) -> str:
    what = {"auth": "accounts and keys", "metering": "credit and the ledger"}[name]
    if database_url:
        return f"the schema {name} in PostgreSQL ({what})"
    was = ": this folder was served from PostgreSQL, and LEGATO_DATABASE_URL is not set"
    return f"{_file(data, name)} ({what}{was if was_elsewhere else ''})"


def _message(data: Path, missing: Mapping[str, str]) -> str:
    options = " ".join(f"--begin-anew {name}" for name in missing)
    return (
        f"missing: {'; '.join(missing.values())}. "
        f"Other parts of this installation are in use and would not match new ones. Restore what is missing from a "
        f"backup ({RUNBOOK}); or create it again, without its data, with `legato up {options}`; or start an empty "
        f"installation in another folder with --data (this one is {data})"
    )


# Of a store; what is asked of it are numbers.
_Row = tuple[int | None, ...]


def _query(data: Path, database_url: str, name: str, query: str) -> tuple[StoreState, int | None]:
    """Returns the state of a store, and the first value that a query finds in it, or None."""
    found = _ask_postgresql(database_url, name, query) if database_url else _ask_sqlite(_file(data, name), query)
    if isinstance(found, StoreState):
        return found, None
    return (StoreState.USED, found[0]) if found else (StoreState.EMPTY, None)


def _ask_sqlite(path: Path, query: str) -> StoreState | _Row | None:
    """Returns the first row, or None; the state of a store that has no such table, or cannot be read."""
    if not path.exists():
        return StoreState.ABSENT
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
                # The file is empty.
                return StoreState.ABSENT
            row: _Row | None = connection.execute(query).fetchone()
            return row
    except sqlite3.OperationalError as error:
        # Its tables are not created yet; or it is locked, or on a disk that cannot be read.
        return StoreState.EMPTY if "no such table" in str(error) else StoreState.UNKNOWN
    except sqlite3.DatabaseError as error:
        raise Incomplete(damaged(path, str(error))) from None


def damaged(path: Path, reason: str) -> str:
    return (
        f"{path} is damaged ({reason}): stop the service, keep a copy of the file, and restore it from a backup "
        f"({RUNBOOK}); or move it away and start without its data with `legato up --begin-anew {path.stem}`"
    )


def _ask_postgresql(url: str, schema: str, query: str) -> StoreState | _Row | None:
    import psycopg

    try:
        with psycopg.connect(url, connect_timeout=CONNECT_TIMEOUT_S, options=f"-csearch_path={schema}") as connection:
            # The query is built from constants only.
            return connection.execute(query.encode()).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return StoreState.ABSENT
    except psycopg.Error:
        return StoreState.UNKNOWN


def _file(data: Path, name: str) -> Path:
    return data / f"{name}.db"
