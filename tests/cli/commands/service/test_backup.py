import json
import os
import stat
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.backed_up import BALANCE_NANOS, PEPPERS, BackedUp
from tests.support.servers.s3 import S3


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "backups"


def test_manifest_has_versions_checksums_and_figures_and_no_secret(backed_up: BackedUp, target: Path) -> None:
    made = backed_up.json("backup", str(target))
    manifest = json.loads((target / made["backup"] / "manifest.json").read_text())
    assert manifest["totals"] == {"accounts": 1, "keys": 1, "ledger_entries": 1, "balance_nanos": BALANCE_NANOS}
    assert made["balance"] == "0.000007"
    shown = {each["service"]: each["revision"] for each in backed_up.json("migrate", "--show")}
    assert {name: schema["revision"] for name, schema in manifest["schemas"].items()} == shown
    assert manifest["secrets"]["LEGATO_KEY_PEPPERS"].startswith("1:")
    assert PEPPERS not in json.dumps(manifest)
    for path in target.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    # Nothing of its making is left.
    assert sorted(path.name for path in target.iterdir()) == [made["backup"]]


def test_the_newest_are_kept_and_one_without_a_manifest_is_none(backed_up: BackedUp, target: Path) -> None:
    for name in ("20250101T000000Z", "20250102T000000Z", "20250103T000000Z"):
        (target / name).mkdir(parents=True)
        (target / name / "auth.db").write_bytes(b"")
    for name in ("20250101T000000Z", "20250102T000000Z"):
        (target / name / "manifest.json").write_bytes(b"{}")
    # Of a backup that was killed.
    (target / ".legato-backup-1").mkdir()
    os.utime(target / ".legato-backup-1", (0, 0))
    made = backed_up.json("backup", str(target), "--keep", "2")
    assert not (target / ".legato-backup-1").exists()
    assert made["deleted"] == ["20250101T000000Z", "20250103T000000Z"]
    kept = {path.parent.name for path in target.rglob("manifest.json")}
    assert kept == {"20250102T000000Z", made["backup"]}


def test_a_bucket_must_be_in_canada_and_takes_a_backup(backed_up: BackedUp, s3_server: S3) -> None:
    with patch.dict(os.environ, s3_server.environ):
        url = f"{s3_server.new_bucket()}/of/legato"
        code, said = backed_up.run("backup", url)
        assert code == 2
        assert "LEGATO_BACKUP_REGION" in said
        made = backed_up.json("backup", url, LEGATO_BACKUP_REGION="ca-central-1")
        backed_up.add_account("acct_2")
        replacing = [] if backed_up.url else ["--replace"]
        restored = backed_up.json("restore", url, *replacing, LEGATO_BACKUP_REGION="canada")
        assert restored["backup"] == made["backup"]


def test_nothing_is_written_where_a_store_is_missing(tmp_path: Path, target: Path) -> None:
    code, said = BackedUp(tmp_path, "", "").run("backup", str(target))
    assert code == 1
    assert "no store of metering and auth" in said
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("database_kind", ["postgresql"])
@pytest.mark.parametrize(("program", "word"), [(None, "not in PATH"), ("15.2", "server is PostgreSQL 18")])
def test_a_missing_or_older_pg_dump_is_named(
    backed_up: BackedUp, target: Path, tmp_path: Path, program: str | None, word: str
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    if program:
        (folder / "pg_dump").write_text(f"#!/bin/sh\necho 'pg_dump (PostgreSQL) {program}'\n")
        (folder / "pg_dump").chmod(0o700)
    code, said = backed_up.run("backup", str(target), PATH=str(folder))
    assert code == 1
    assert word in said
    assert list(target.iterdir()) == []
