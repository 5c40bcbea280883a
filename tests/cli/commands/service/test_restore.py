import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.backups.restored_database import name_of, url_of
from cli.supervision.completeness import Incomplete, require_complete
from services.chassis.process import failpoints
from tests.cli.backed_up import BALANCE_NANOS, BackedUp
from tests.e2e.upgrades.release_data import RELEASES, SECRETS, load_postgresql, load_sqlite
from tests.support.servers.postgres import Postgres

STORES = ("auth.db", "metering.db", "router.db")


@pytest.fixture
def backups(backed_up: BackedUp, tmp_path: Path) -> Path:
    """Has one backup; since then an account was added."""
    backed_up.json("backup", str(tmp_path / "backups"))
    backed_up.add_account("acct_2")
    return tmp_path / "backups"


def restore(backed_up: BackedUp, backups: Path, *options: str) -> BackedUp:
    """Returns the restored installation."""
    done = backed_up.json("restore", str(backups), *options, *([] if backed_up.url else ["--replace"]))
    assert done["violations"] == []
    if not backed_up.url:
        return backed_up
    assert f"Set LEGATO_DATABASE_URL to the database {done['database']}" in done["next"][0]
    return replace(backed_up, url=url_of(backed_up.url, done["database"]))


def test_restored_stores_are_those_of_the_backup_and_the_old_ones_are_kept(backed_up: BackedUp, backups: Path) -> None:
    restored = restore(backed_up, backups)
    assert restored.accounts() == ["acct_1"]
    assert restored.ask("metering", "SELECT balance_nanos FROM accounts") == [(BALANCE_NANOS,)]
    if backed_up.url:
        assert backed_up.accounts() == ["acct_1", "acct_2"]
    else:
        [aside] = backed_up.data.glob("replaced-*")
        assert replace(backed_up, data=aside).accounts() == ["acct_1", "acct_2"]


def test_edges_that_know_newer_epochs_go_on_with_the_restored_database(backed_up: BackedUp, backups: Path) -> None:
    restored = restore(backed_up, backups)
    [(epoch, forgotten)] = restored.ask("auth", "SELECT value, forgotten FROM epoch")
    # No database that counts its changes comes that far, and nothing that was cached before is valid.
    assert epoch == forgotten > 10**15
    assert restored.ask("auth", "SELECT count(*) FROM key_changes") == [(0,)]


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_copy_of_the_audit_log_that_is_missing_or_on_the_same_disk_is_told(
    backed_up: BackedUp, backups: Path
) -> None:
    copy = backed_up.data / "audit-copy"
    told = backed_up.json("restore", str(backups), "--replace")["next"][0]
    assert f"there is no copy of the audit log in {copy}" in told
    copy.mkdir()
    (copy / "1.jsonl").touch()
    told = backed_up.json("restore", str(backups), "--replace")["next"][0]
    assert f"in {copy}, on the disk of the databases" in told


class Killed(BaseException):
    pass


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Ends the command at its n-th failpoint; yields the number of those that it has reached."""
    reached: list[int] = []

    def hit(name: str) -> None:
        reached.append(len(reached) + 1)
        if reached[-1] == step:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "watch", lambda folder: None)
        patch.setattr(failpoints, "hit", hit)
        yield reached


def test_restore_that_is_killed_at_any_step_is_completed_by_the_next(
    backed_up: BackedUp, backups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killed_at(0, monkeypatch) as reached:
        restore(backed_up, backups, *(["--database", "counted"] if backed_up.url else []))
    assert len(reached) > 3
    for step in reached:
        backed_up.add_account(f"acct_of_{step}")
        options = ["--database", f"killed_{step}"] if backed_up.url else ["--replace"]
        with killed_at(step, monkeypatch), pytest.raises(Killed):
            backed_up.run("restore", str(backups), *options)
        if not backed_up.url and not all((backed_up.data / name).exists() for name in STORES):
            with pytest.raises(Incomplete, match="legato restore"):
                require_complete(backed_up.data, "", peppers_given=True)
        restored = restore(backed_up, backups, *(options if backed_up.url else []))
        assert restored.accounts() == ["acct_1"]
        assert not (backed_up.data / "restoring").exists()


def test_a_target_that_is_in_use_is_refused(backed_up: BackedUp, backups: Path) -> None:
    options = ["--database", name_of(backed_up.url)] if backed_up.url else []
    code, said = backed_up.run("restore", str(backups), *options)
    assert code == 1
    assert ("--database" if backed_up.url else "--replace") in said
    assert backed_up.accounts() == ["acct_1", "acct_2"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda manifest: manifest.update(format=2), "format 2"),
        (lambda manifest: manifest["schemas"]["auth"].update(revision="9999", oldest="9999"), "too new"),
        (lambda manifest: manifest["totals"].update(keys=2), "keys=1"),
        (lambda manifest: manifest["files"][0].update(sha256="00"), "router.db of the backup is damaged"),
        (lambda manifest: manifest["secrets"].update(LEGATO_KEY_PEPPERS="1:00"), "should be 00"),
        (lambda manifest: manifest.update(store="postgresql"), "LEGATO_DATABASE_URL must be set"),
    ],
    ids=["format", "newer", "totals", "checksum", "secret", "store"],
)
def test_a_backup_that_does_not_fit_is_refused_and_the_stores_are_left_alone(
    backed_up: BackedUp, backups: Path, change: Callable[[Any], None], word: str
) -> None:
    [path] = backups.rglob("manifest.json")
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    code, said = backed_up.run("restore", str(backups), "--replace")
    assert code == 1
    assert word in said
    assert backed_up.accounts() == ["acct_1", "acct_2"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_backup_without_a_manifest_and_a_missing_one_are_refused(backed_up: BackedUp, backups: Path) -> None:
    [path] = backups.rglob("manifest.json")
    path.unlink()
    for options, word in (([], "has no backup"), (["--backup", path.parent.name], "is incomplete")):
        code, said = backed_up.run("restore", str(backups), "--replace", *options)
        assert code == 1
        assert word in said


@pytest.mark.parametrize("release", RELEASES)
def test_a_backup_of_an_earlier_release_keeps_its_schemas_until_something_migrates_them(
    release: str, database_kind: str, request: pytest.FixtureRequest, socket_folder: Path
) -> None:
    """As before an upgrade, and after it: the new program backs up and restores what the old one has left."""
    earlier = BackedUp(socket_folder, "", "")
    if database_kind == "sqlite":
        load_sqlite(release, socket_folder)
    else:
        server: Postgres = request.getfixturevalue("postgres_server")
        earlier = BackedUp(socket_folder, request.getfixturevalue("postgres_url"), str(server.binaries))
        load_postgresql(release, earlier.url)
    accounts, before = earlier.accounts(), earlier.json("migrate", "--show")
    earlier.json("backup", str(socket_folder / "backups"), **SECRETS)
    earlier.json("migrate")
    done = earlier.json("restore", str(socket_folder / "backups"), *([] if earlier.url else ["--replace"]), **SECRETS)
    assert "to go back, start that release" in done["next"][0]
    restored = replace(earlier, url=url_of(earlier.url, done["database"])) if earlier.url else earlier
    assert restored.accounts() == accounts
    assert restored.json("migrate", "--show") == before
    restored.json("migrate")
    assert all(each["revision"] == each["newest"] for each in restored.json("migrate", "--show"))
    assert restored.accounts() == accounts
