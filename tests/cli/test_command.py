"""The options that every command has."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import legato


@pytest.mark.parametrize("arguments", [["version", "--json"], ["--json", "version"]])
def test_json_may_stand_before_the_command_too(arguments: list[str]) -> None:
    assert CliRunner().invoke(legato, arguments).stdout.startswith("{")


def test_the_folder_may_come_from_the_environment(tmp_path: Path) -> None:
    result = CliRunner(env={"LEGATO_DATA": str(tmp_path / "elsewhere")}).invoke(legato, ["status"])
    assert f"not running on {tmp_path / 'elsewhere'}" in result.stderr


def test_the_folder_and_the_addresses_may_be_in_the_settings_file(tmp_path: Path) -> None:
    nowhere = f"unix:{tmp_path}/nothing.sock"
    file = tmp_path / "settings.toml"
    file.write_text(f'data = "{tmp_path}/elsewhere"\nauth_address = "{nowhere}, 127.0.0.1:1"\n')
    runner = CliRunner(env={"LEGATO_SETTINGS": str(file)})
    assert f"not running on {tmp_path}/elsewhere" in runner.invoke(legato, ["status"]).stderr
    assert f"auth is not running at {nowhere}, 127.0.0.1:1" in runner.invoke(legato, ["accounts", "list"]).stderr
    assert "not running on given" in runner.invoke(legato, ["status", "--data", "given"]).stderr


def test_folder_that_is_given_is_meant_also_where_services_are_elsewhere(tmp_path: Path) -> None:
    """Else a grant for a trial would be booked where the shell usually works."""
    elsewhere = {
        f"LEGATO_{service}_ADDRESS": f"unix:{tmp_path}/run/a.sock" for service in ("AUTH", "METERING", "ROUTER")
    }
    for arguments in (["accounts", "list"], ["credits", "grant", "acct_1", "5"], ["routes", "show"]):
        result = CliRunner(env=elsewhere).invoke(legato, [*arguments, "--data", str(tmp_path / "trial")])
        assert result.exit_code == 3
        assert f"not running on {tmp_path / 'trial'}" in result.stderr


def test_the_folder_nearest_to_the_command_wins(tmp_path: Path) -> None:
    result = CliRunner().invoke(legato, ["--data", "outer", "accounts", "--data", "middle", "list", "--data", "inner"])
    assert "not running on inner" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["accounts", "create", "caf\udce9"],
        ["keys", "create", "--account", "acct_1", "--name", "caf\udce9"],
        ["credits", "adjust", "acct_1", "1", "--reason", "caf\udce9"],
    ],
)
def test_text_that_is_no_utf_8_is_misuse(arguments: list[str]) -> None:
    """Python hands on bytes of a shell that are none as characters which cannot be sent."""
    result = CliRunner().invoke(legato, arguments)
    assert (result.exit_code, result.stderr) == (2, "legato: arguments must be UTF-8 text.\n")
