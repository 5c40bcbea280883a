"""Backups that somebody has tampered with: names of schemas and files are those of our services and nothing else."""

import hashlib
import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.backed_up import BackedUp
from tests.cli.commands.service.test_restore import STORES

SCRIPT = """
revision = "0001"
down_revision = None
open({proof!r}, "w").close()
def upgrade():
    pass
"""


@pytest.fixture
def backup(backed_up: BackedUp, tmp_path: Path) -> Path:
    """The folder of one backup."""
    made = backed_up.json("backup", str(tmp_path / "backups"))
    return tmp_path / "backups" / str(made["backup"])


def change_manifest(backup: Path, change: Callable[[Any], None]) -> None:
    path = backup / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def add_file(backup: Path, name: str, content: bytes) -> None:
    """Adds a file to a backup, and to its manifest."""
    path = backup / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    described = {"name": name, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change_manifest(backup, lambda manifest: manifest["files"].append(described))


def is_refused(backed_up: BackedUp, backup: Path, word: str) -> None:
    """Checks that a backup is refused in one line, and that nothing is created for it."""
    before = sorted(path for path in backup.parents[1].rglob("*") if path.is_file())
    data = sorted(path.name for path in backed_up.data.iterdir())
    options = ["--database", "of_nobody"] if backed_up.url else ["--replace"]
    code, said = backed_up.run("restore", str(backup.parent), *options)
    assert code == 1, said
    assert said.startswith("legato: ")
    assert said.count("\n") == 1
    assert word in said
    assert sorted(path for path in backup.parents[1].rglob("*") if path.is_file()) == before
    assert sorted(path.name for path in backed_up.data.iterdir()) == data
    assert backed_up.accounts() == ["acct_1"]
    if backed_up.url:
        with psycopg.connect(backed_up.url) as connection:
            created = connection.execute("SELECT FROM pg_database WHERE datname = 'of_nobody'").fetchall()
        assert created == []


def test_a_schema_that_is_a_path_runs_no_code_and_creates_no_file(
    backed_up: BackedUp, backup: Path, tmp_path: Path
) -> None:
    proof = tmp_path / "code-has-run"
    versions = tmp_path / "service" / "migrations" / "versions"
    versions.mkdir(parents=True)
    (versions / "v0001_first.py").write_text(SCRIPT.format(proof=str(proof)))
    (versions.parent / "env.py").write_text(SCRIPT.format(proof=str(proof)))
    for name in (str(tmp_path / "service"), "../../escape", "payments", "Auth", "auth/../auth", "", "auth\x1b[2J\n"):
        change_manifest(backup, lambda manifest, name=name: manifest["schemas"].update({name: {}}))  # type: ignore[misc]
        is_refused(backed_up, backup, "schema")
        change_manifest(backup, lambda manifest, name=name: manifest["schemas"].pop(name))  # type: ignore[misc]
    assert not proof.exists()


def test_a_file_that_is_none_of_our_stores_is_refused(backed_up: BackedUp, backup: Path, tmp_path: Path) -> None:
    kept = (backup / "manifest.json").read_text()
    names = ["auth.db-wal", "auth.db-journal", "../escape", str(tmp_path / "escape"), "payments.db", "--version", "x/y"]
    for name in [*names, "auth.db" if backed_up.url else "legato.dump"]:
        add_file(backup, name, b"x")
        is_refused(backed_up, backup, "file")
        (backup / name).unlink()
        (backup / "manifest.json").write_text(kept)
    # One that is named twice, and one that is missing.
    change_manifest(backup, lambda manifest: manifest["files"].append(manifest["files"][0]))
    is_refused(backed_up, backup, "file")
    change_manifest(backup, lambda manifest: manifest.update(files=manifest["files"][1:-1]))
    is_refused(backed_up, backup, "file")


def test_a_schema_that_every_installation_has_must_be_there(backed_up: BackedUp, backup: Path) -> None:
    for missing in ("auth", "metering"):
        kept = (backup / "manifest.json").read_text()
        change_manifest(backup, lambda manifest, missing=missing: manifest["schemas"].pop(missing))  # type: ignore[misc]
        is_refused(backed_up, backup, missing)
        (backup / "manifest.json").write_text(kept)


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_malformed_manifest_is_told_in_one_line(backed_up: BackedUp, backup: Path) -> None:
    path = backup / "manifest.json"
    good = json.loads(path.read_text())
    changes: list[dict[str, Any]] = [
        {"legato": "0.3.0\n\x1b[2Jall is well"},
        {"legato": "9" * 10_000},
        {"began_at": "2026-11-18T15:30:00"},
        {"began_at": "the day before"},
        {"store": "\x1b[2J"},
        {"schemas": []},
        {"schemas": good["schemas"] | {"auth": {"revision": "../../x", "oldest": ""}}},
        {"schemas": good["schemas"] | {"auth": {"revision": 13, "oldest": ""}}},
        {"files": {}},
        {"files": [{"name": "auth.db", "size_bytes": -1, "sha256": "00"}]},
        {"files": [each | {"sha256": "\x1b[2J" * 16} for each in good["files"]]},
        {"totals": None},
        {"secrets": {"LEGATO_KEY_PEPPERS": "no fingerprint"}},
        {"secrets": {"LEGATO_KEY_PEPPERS": ""}},
        {"secrets": {"LEGATO_KEY_PEPPERS\n": "1:00"}},
        {"secrets": ["LEGATO_KEY_PEPPERS"]},
    ]
    texts = [json.dumps(good | change) for change in changes]
    deep = '{"x":' + "[" * 100_000 + "]" * 100_000 + "," + json.dumps(good)[1:]
    for text in [*texts, deep, "", "null", "[]", "{", json.dumps(good)[:-20], "\ufeff{}", "1e999"]:
        path.write_text(text)
        is_refused(backed_up, backup, "the manifest of")
        assert "\x1b" not in backed_up.run("restore", str(backup.parent), "--replace")[1]
    path.write_bytes(b"\xff\xfe\x00")
    is_refused(backed_up, backup, "the manifest of")


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_stores_that_are_none_of_ours_are_told_in_one_line(backed_up: BackedUp, backup: Path, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE books (title TEXT)")
    other.close()
    for content in ((tmp_path / "other.db").read_bytes(), b"no database" * 100, b""):
        for name in ("auth.db", "metering.db"):
            kept, described = (backup / name).read_bytes(), (backup / "manifest.json").read_text()
            (backup / name).unlink()
            change_manifest(
                backup,
                lambda manifest, name=name: manifest.update(  # type: ignore[misc]
                    files=[each for each in manifest["files"] if each["name"] != name]
                ),
            )
            add_file(backup, name, content)
            code, said = backed_up.run("restore", str(backup.parent), "--replace")
            assert (code, said.count("\n")) == (1, 1), said
            (backup / name).unlink()
            (backup / name).write_bytes(kept)
            (backup / "manifest.json").write_text(described)
    assert backed_up.accounts() == ["acct_1"]
    assert all((backed_up.data / name).exists() for name in STORES)


# By what the refusal names: what makes it, and what takes it away.
OTHER_THINGS = {
    "of OTHERS": (
        'CREATE SCHEMA "of OTHERS" CREATE TABLE numbers (number INTEGER)',
        'DROP SCHEMA "of OTHERS" CASCADE',
    ),
    # It is in no schema, and has the name of one of ours.
    "EVENT TRIGGER - auth": (
        """CREATE FUNCTION auth.run() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RETURN; END';
        CREATE EVENT TRIGGER auth ON ddl_command_start EXECUTE FUNCTION auth.run()""",
        "DROP EVENT TRIGGER auth; DROP FUNCTION auth.run()",
    ),
    "PUBLICATION - auth": ("CREATE PUBLICATION auth", "DROP PUBLICATION auth"),
}


@pytest.mark.parametrize("database_kind", ["postgresql"])
@pytest.mark.parametrize("named", OTHER_THINGS)
def test_a_dump_with_what_is_in_none_of_our_schemas_is_refused(
    backed_up: BackedUp, backup: Path, tmp_path: Path, named: str
) -> None:
    make, take_away = OTHER_THINGS[named]
    with psycopg.connect(backed_up.url, autocommit=True) as connection:
        connection.execute(make)
        dump = tmp_path / "other.dump"
        command = [f"{backed_up.programs}/pg_dump", "--format=custom", f"--file={dump}", backed_up.url]
        subprocess.run(command, check=True, env=dict(os.environ))
        connection.execute(take_away)
    (backup / "legato.dump").unlink()
    change_manifest(backup, lambda manifest: manifest.update(files=[]))
    add_file(backup, "legato.dump", dump.read_bytes())
    is_refused(backed_up, backup, named)


@pytest.mark.parametrize("database_kind", ["postgresql"])
def test_a_dump_whose_contents_cannot_be_told_is_refused(backed_up: BackedUp, backup: Path) -> None:
    """What pg_restore takes for a kind of thing may be any text; the statement beside it is executed."""
    dump = (backup / "legato.dump").read_bytes()
    changed = dump.replace(b"\x07\x00\x00\x00TRIGGER", b"\x07\x00\x00\x00trigger")
    assert changed != dump
    (backup / "legato.dump").unlink()
    change_manifest(backup, lambda manifest: manifest.update(files=[]))
    add_file(backup, "legato.dump", changed)
    is_refused(backed_up, backup, "trigger")
