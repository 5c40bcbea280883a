"""A data folder's losses are told, and nothing is made in their place."""

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from cli.main import legato
from cli.supervision.completeness import Incomplete, next_pepper_version, record_parts, require_complete
from services.chassis.database.database import open_database

SERVICES = Path(__file__).parents[3] / "services"
FILES = ("auth.db", "metering.db", "key-peppers")


def make_store(data: Path, service: str, url: str = "") -> None:
    database = open_database(service, url, data)
    database.migrate(SERVICES / service / "migrations")
    database.close()


ACCOUNT = "INSERT INTO accounts (account_id, name, created_at_us, preferred_class) VALUES ('acct_1', 'Ada', 1, 'mezzo')"
KEY = (
    "INSERT INTO api_keys (key_id, account_id, name, scopes, digest, pepper_version, created_at_us)"
    " VALUES ('key_1', 'acct_1', '', '', '', 3, 1)"
)


def use(data: Path) -> None:
    with closing(sqlite3.connect(data / "auth.db")) as connection, connection:
        connection.execute(ACCOUNT)
        connection.execute(KEY)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that has served, and has an account and a key."""
    for service in ("auth", "metering"):
        make_store(tmp_path, service)
    (tmp_path / "key-peppers").write_text("3:" + "ab" * 32)
    use(tmp_path)
    return tmp_path


def check(data: Path, *begin_anew: str, url: str = "", peppers_given: bool = False) -> None:
    require_complete(data, url, peppers_given=peppers_given, begin_anew=begin_anew)


def lose(data: Path, *names: str) -> None:
    for name in names:
        for path in data.glob(f"{name}*"):
            path.unlink()


def test_a_whole_folder_and_an_empty_one_are_complete(data: Path, tmp_path: Path) -> None:
    check(data)
    record_parts(data, "")
    check(data)
    (tmp_path / "new").mkdir()
    check(tmp_path / "new")


@pytest.mark.parametrize("lost", FILES)
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_lost_part_is_named_with_what_to_do(data: Path, lost: str, is_recorded: bool) -> None:
    if is_recorded:
        record_parts(data, "")
    elif lost == "auth.db":
        # Without accounts only the ledger tells that from a first start.
        with closing(sqlite3.connect(data / "metering.db")) as connection, connection:
            columns = connection.execute("SELECT name, type FROM pragma_table_info('ledger')").fetchall()
            values = ", ".join("1" if kind in ("BIGINT", "INTEGER") else "'x'" for _, kind in columns)
            connection.execute("PRAGMA ignore_check_constraints = ON")
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(f"INSERT INTO ledger VALUES ({values})")
    lose(data, lost)
    with pytest.raises(Incomplete) as refusal:
        check(data)
    part = lost.removesuffix(".db")
    assert str(data / lost) in refusal.value.message
    assert f"legato up --begin-anew {part}`" in refusal.value.message
    assert "restore-the-database.md" in refusal.value.message
    check(data, part)


def test_all_of_several_lost_parts_are_named(data: Path) -> None:
    record_parts(data, "")
    lose(data, *FILES)
    with pytest.raises(Incomplete) as refusal:
        check(data)
    assert all(str(data / name) in refusal.value.message for name in FILES)
    check(data, "auth", "metering", "key-peppers")


@pytest.mark.parametrize("lost", ["auth.db", "metering.db"])
def test_a_database_that_was_cut_to_nothing_is_lost(data: Path, lost: str) -> None:
    record_parts(data, "")
    lose(data, lost)
    (data / lost).touch()
    with pytest.raises(Incomplete, match="missing"):
        check(data)


def test_a_first_start_that_was_interrupted_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "key-peppers").write_text("1:" + "ab" * 32)
    check(tmp_path)
    make_store(tmp_path, "auth")
    check(tmp_path)
    lose(tmp_path, "key-peppers", "auth.db")
    make_store(tmp_path, "metering")
    check(tmp_path)


def test_peppers_that_a_setting_gives_need_no_file(data: Path) -> None:
    record_parts(data, "")
    lose(data, "key-peppers")
    check(data, peppers_given=True)


def test_a_folder_that_was_served_from_postgresql_is_not_served_without_it(tmp_path: Path) -> None:
    (tmp_path / "key-peppers").write_text("1:" + "ab" * 32)
    record_parts(tmp_path, "postgresql://somewhere/legato")
    with pytest.raises(Incomplete, match="LEGATO_DATABASE_URL is not set"):
        check(tmp_path)


def test_a_damaged_database_is_told_in_our_words(data: Path) -> None:
    (data / "metering.db").write_bytes(b"this is no database " * 1000)
    with pytest.raises(Incomplete) as refusal:
        check(data)
    assert f"{data / 'metering.db'} is damaged" in refusal.value.message
    assert "restore-the-database.md" in refusal.value.message


def test_peppers_that_are_made_anew_do_not_pass_for_the_lost_ones(data: Path, tmp_path: Path) -> None:
    assert next_pepper_version(data, "") == 4
    assert next_pepper_version(tmp_path / "new", "") == 1


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_nothing_starts_and_nothing_is_made(data: Path, command: str) -> None:
    record_parts(data, "")
    lose(data, "metering.db")
    routes = Path(__file__).parents[3] / "routes.toml"
    options = ["--port", "0", "--routes", str(routes)] if command == "up" else []
    ended = CliRunner().invoke(legato, [command, *options, "--data", str(data)])
    assert ended.exit_code == 1
    assert f"missing: {data / 'metering.db'}" in ended.output
    assert not (data / "metering.db").exists()


def test_in_postgresql_a_lost_schema_and_lost_peppers_are_noticed(postgres_url: str, tmp_path: Path) -> None:
    check(tmp_path, url=postgres_url)
    make_store(tmp_path, "auth", postgres_url)
    check(tmp_path, url=postgres_url)
    with psycopg.connect(postgres_url, autocommit=True, options="-csearch_path=auth") as connection:
        connection.execute(ACCOUNT.encode())
        connection.execute(KEY.encode())
    with pytest.raises(Incomplete) as refusal:
        check(tmp_path, url=postgres_url)
    assert "the schema metering in PostgreSQL" in refusal.value.message
    assert str(tmp_path / "key-peppers") in refusal.value.message
    assert next_pepper_version(tmp_path, postgres_url) == 4
    make_store(tmp_path, "metering", postgres_url)
    check(tmp_path, url=postgres_url, peppers_given=True)


def test_a_postgresql_that_is_away_is_left_to_the_services(tmp_path: Path) -> None:
    check(tmp_path, url="postgresql://legato@/nowhere?host=/nonexistent")
