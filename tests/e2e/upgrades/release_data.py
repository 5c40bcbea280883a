"""Loads the data of a release, as tests/e2e/upgrades/make_release_data.py has written it."""

import base64
import json
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import psycopg

SERVICES = ("auth", "metering", "router")
# Of the data, not of this machine.
SECRETS = {"LEGATO_KEY_PEPPERS": "1:" + "5e" * 32, "LEGATO_GROUNDING_KEY": "1:" + "c4" * 32}
GROUNDING = {"LEGATO_MEMORY": "true", "LEGATO_ATTACHMENTS": "true"}
RELEASES = ("release_0_1_0", "release_0_2_0")
_FOLDER = Path(__file__).parent


def load_sqlite(release: str, data: Path) -> None:
    """Writes the files of the databases into a data folder, in place of those there."""
    for name in SERVICES:
        file = data / f"{name}.db"
        file.unlink(missing_ok=True)
        connection = sqlite3.connect(file)
        connection.executescript((_FOLDER / release / "sqlite" / f"{name}.sql").read_text())
        connection.close()


def load_postgresql(release: str, url: str) -> None:
    """Writes the schemas into an empty database."""
    for name in SERVICES:
        with psycopg.connect(url) as connection:
            connection.execute((_FOLDER / release / "postgresql" / f"{name}.sql").read_bytes())


def read_facts(release: str, store: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((_FOLDER / release / "facts.json").read_text())[store]
    return facts


def write_journal(release: str, data: Path, store: str) -> None:
    facts = read_facts(release, store)
    journals = data / "journals"
    journals.mkdir(mode=0o700, exist_ok=True)
    (journals / facts["journal"]).write_bytes(zlib.decompress(base64.b64decode(facts["journal_zlib"])))
