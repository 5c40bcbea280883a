import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from cli.main import legato


def run(data: Path, *options: str, **environ: str) -> tuple[int, str]:
    result = CliRunner().invoke(legato, ["migrate", *options, "--json", "--data", str(data)], env=environ)
    return result.exit_code, result.stdout or result.stderr


def test_databases_of_all_services_are_made_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        code, said = run(tmp_path)
        assert code == 0
        assert {"auth", "metering"} <= set(json.loads(said)["migrated"])

    with sqlite3.connect(tmp_path / "auth.db") as connection:
        assert connection.execute("SELECT count(*) FROM accounts").fetchone() == (0,)
    connection.close()


def test_versions_of_the_schemas_and_of_the_program_are_shown(tmp_path: Path) -> None:
    assert {each["revision"] for each in json.loads(run(tmp_path, "--show")[1])} == {None}
    run(tmp_path)
    shown = {each["service"]: each for each in json.loads(run(tmp_path, "--show")[1])}
    assert sorted(shown) == ["auth", "metering", "router"]
    said = CliRunner().invoke(legato, ["--version"]).stdout
    for each in shown.values():
        assert each["revision"] == each["newest"]
        assert said == f"legato {each['migrated_by']}\n"


def test_databases_are_made_in_the_folder_that_the_settings_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text('data = "elsewhere"\n')
    result = CliRunner().invoke(legato, ["migrate"], env={"LEGATO_SETTINGS": "settings.toml"})

    assert result.exit_code == 0
    assert Path("elsewhere/auth.db").exists()
    assert not Path(".legato").exists()


def test_schemas_of_all_services_are_made_in_postgresql(postgres_url: str, tmp_path: Path) -> None:
    code, _ = run(tmp_path, LEGATO_DATABASE_URL=postgres_url)

    assert code == 0
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM auth.accounts").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM metering.holds").fetchone() == (0,)


def test_schemas_of_the_named_services_alone_are_made(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "router")[1]) == {"migrated": ["router"]}
    assert [file.name for file in tmp_path.glob("*.db")] == ["router.db"]


def test_one_that_waits_for_another_says_so_and_finds_nothing_to_do(postgres_url: str, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("legato")), "migrate", "router", "--data", str(tmp_path)]
    environ = os.environ | {"LEGATO_DATABASE_URL": postgres_url}
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(hashtext('legato:router'))")
        waiting = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "waiting for the schema router: another process migrates it\n"
        other.execute("CREATE SCHEMA router")
        version = "SELECT '9999' AS version_num, '' AS oldest_num, '' AS release"
        other.execute(f"CREATE TABLE router.schema_version AS {version}".encode())
    assert waiting.communicate(timeout=60) == ("migrated  router\n", "")
    assert waiting.returncode == 0


@pytest.mark.parametrize(("oldest", "code"), [("", 0), ("9999", 1)], ids=["compatible", "refusing"])
def test_a_schema_of_a_later_release_is_refused_only_where_this_one_would_be_wrong(
    oldest: str, code: int, tmp_path: Path
) -> None:
    run(tmp_path)
    connection = sqlite3.connect(tmp_path / "metering.db")
    connection.execute("UPDATE schema_version SET version_num = '9999', oldest_num = ?, release = '9.9.9'", [oldest])
    connection.commit()
    connection.close()
    ended = run(tmp_path, "metering")
    assert ended[0] == code
    sentence = (
        "the schema metering was migrated by Legato 9.9.9 and is too new for this process: start the newer release"
    )
    assert (sentence in ended[1]) is bool(code)


@pytest.mark.parametrize(
    ("environ", "code", "word"),
    [
        ({"LEGATO_DATABASE_REGION": "us-east-1"}, 2, "Canada"),
        ({"LEGATO_DATABASE_URL": "postgresql://legato@/legato?host=/nonexistent"}, 1, "cannot be reached"),
    ],
    ids=["abroad", "away"],
)
def test_a_database_that_may_not_or_cannot_be_opened_is_told(
    environ: dict[str, str], code: int, word: str, tmp_path: Path
) -> None:
    assert (ended := run(tmp_path, **environ))[0] == code
    assert word in ended[1]
