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
RELEASE = Path(__file__).parent / "release_0_1_0"


def load_sqlite(data: Path) -> None:
    """Writes the files of the databases into a data folder, in place of those there."""
    for name in SERVICES:
        file = data / f"{name}.db"
        file.unlink(missing_ok=True)
        connection = sqlite3.connect(file)
        connection.executescript((RELEASE / "sqlite" / f"{name}.sql").read_text())
        connection.close()


def load_postgresql(url: str) -> None:
    """Writes the schemas into an empty database."""
    for name in SERVICES:
        with psycopg.connect(url) as connection:
            connection.execute((RELEASE / "postgresql" / f"{name}.sql").read_bytes())


def read_facts(store: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((RELEASE / "facts.json").read_text())[store]
    return facts


def write_journal(data: Path, store: str) -> None:
    facts = read_facts(store)
    journals = data / "journals"
    journals.mkdir(mode=0o700, exist_ok=True)
    (journals / facts["journal"]).write_bytes(zlib.decompress(base64.b64decode(facts["journal_zlib"])))
