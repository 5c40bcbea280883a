"""Runs PostgreSQL's own programs, `pg_dump` and `pg_restore`, on the databases of the service."""

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
from psycopg import conninfo, pq

# By this name a session of an interrupted restore is found, and ended.
APPLICATION: Final = "legato restore"

# A line of a dump's table of contents, as in `215; 1259 16386 TABLE auth accounts legato`.
_LISTED: Final = re.compile("[0-9]+; [0-9]+ [0-9]+ (?P<kind>[A-Z][A-Z ]*) (?P<schema>[^ ]+) (?P<tag>.+) [^ ]*")
# Entries of every dump that create nothing.
_SETTINGS: Final = ("ENCODING", "STDSTRINGS", "SEARCHPATH")
# What a schema itself has is in none; so are event triggers and more, which may have the name of a schema.
_OF_SCHEMAS: Final = ("SCHEMA", "COMMENT", "ACL")
_QUOTED_MOST: Final = 100


class PostgresFailed(Exception):
    """A program is missing, too old for the server, or failed; or the server refused. Says why in one line."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        # The driver's message has no password in it; lines after the first are advice.
        raise PostgresFailed(f"PostgreSQL: {str(error).partition(chr(10))[0]}") from None


def dump_schemas(url: str, snapshot: str, schemas: Sequence[str], file: Path) -> None:
    """Writes the schemas as of an exported snapshot to a new file, which only its owner may read."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    named = [f"--schema={schema}" for schema in schemas]
    _run(url, "pg_dump", ["--format=custom", f"--snapshot={snapshot}", *named, f"--file={file}"])


def restore_schemas(url: str, file: Path) -> None:
    """Restores a dump, all of it or nothing. What it creates belongs to the user of the connection."""
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
    connection = _environ(url)
    _run(url, "pg_restore", [*options, f"--dbname={connection['PGDATABASE']}", str(file)])


def require_schemas(file: Path, schemas: Collection[str]) -> None:
    """Raises unless everything that a dump would create is in one of these schemas, as its table of contents says."""
    path = shutil.which("pg_restore")
    if path is None:
        raise PostgresFailed("pg_restore is not in PATH: install PostgreSQL's client programs")
    for line in _run_program([path, "--list", str(file)], dict(os.environ)).splitlines():
        if line.startswith(";") or not line:
            continue
        entry = _LISTED.fullmatch(line)
        if entry is None or not _is_in(entry, schemas):
            raise PostgresFailed(f"the dump has {line[:_QUOTED_MOST]!a}, which is in none of {', '.join(schemas)}")


def _is_in(entry: re.Match[str], schemas: Collection[str]) -> bool:
    kind, schema, tag = entry["kind"], entry["schema"], entry["tag"]
    if schema != "-":
        return schema in schemas
    return kind in _SETTINGS or (kind in _OF_SCHEMAS and tag.removeprefix("SCHEMA ") in schemas)


def require_program(url: str, name: str) -> str:
    """Returns the path of a program; raises unless it is there and not older than the server."""
    with one_line_errors(), psycopg.connect(url) as connection:
        server = connection.info.server_version // 10_000
    path = shutil.which(name)
    if path is None:
        raise PostgresFailed(f"{name} is not in PATH: install PostgreSQL's client programs, version {server}")
    printed = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\(PostgreSQL\) (\d+)", printed)
    if version is None or int(version[1]) < server:
        raise PostgresFailed(
            f"{path} is {printed.strip() or 'no program of PostgreSQL'}, and the server is PostgreSQL {server}: "
            f"put client programs of version {server} first in PATH"
        )
    return path


def _run(url: str, name: str, options: Sequence[str]) -> None:
    _run_program([require_program(url, name), "--no-password", *options], os.environ | _environ(url))


def _run_program(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Returns what a program writes."""
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise PostgresFailed(f"{Path(command[0]).name} failed: {lines[0]}")
    return ended.stdout


def _environ(url: str) -> dict[str, str]:
    """Returns a connection as libpq's variables: every user of the machine can read a command line, and so a password
    in it."""
    variables = {
        option.keyword.decode(): option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar
    }
    given = conninfo.conninfo_to_dict(url)
    return {variables[key]: str(value) for key, value in given.items() if key in variables} | {"PGAPPNAME": APPLICATION}
