import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.command import COMMANDS
from cli.main import legato


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
        found.append(((*path, name), command))
    return found


def test_help_comes_without_importing_what_is_heavy() -> None:
    program = (
        "import sys\nfrom cli.main import legato\n"
        "try:\n    legato(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('grpc', 'sqlalchemy', 'google.protobuf', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_lists_every_command_with_what_it_does() -> None:
    result = CliRunner().invoke(legato, ["--help"])
    assert result.exit_code == 0
    for name, (_, text) in COMMANDS.items():
        assert name in result.stdout
        assert text in result.stdout


@pytest.mark.parametrize("path", [path for path, _ in every_command(legato)], ids=" ".join)
def test_every_command_has_help_and_takes_data_and_json(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(legato, [*path, "--help"])
    assert result.exit_code == 0
    assert "--data DIR" in result.stdout
    assert "--json" in result.stdout
    assert len(result.stdout.splitlines()[2].strip()) > 10


@pytest.mark.parametrize(
    "arguments",
    [
        ["accounts", "list"],
        ["accounts", "show", "acct_1"],
        ["keys", "list", "--account", "acct_1"],
        ["credits", "adjust", "acct_1", "-1.25", "--reason", "slip"],
        ["usage", "--account", "acct_1"],
        ["audit"],
        ["routes", "show"],
        ["routes", "reload"],
        ["status"],
    ],
)
def test_a_service_that_does_not_run_is_exit_code_3_and_one_line(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(legato, [*arguments, "--data", str(tmp_path / "nothing")])
    assert result.exit_code == 3
    assert result.stderr.startswith("legato: Legato is not running on ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_every_mistake_in_the_settings_is_named_on_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("data = 1\nauth_address = 2\n")
    result = CliRunner(env={"LEGATO_SETTINGS": str(file)}).invoke(legato, ["accounts", "list"])
    assert result.exit_code == 2
    assert [line.split(":")[1] for line in result.stderr.splitlines()] == [" LEGATO_DATA", " LEGATO_AUTH_ADDRESS"]


@pytest.mark.parametrize(
    "arguments",
    # A folder without a name is one of a variable that is not set.
    [["fly"], ["--fly"], ["up", "--port", "99999"], ["up", "--workers", "0"], ["status", "--data", ""]],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(legato, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("legato: ")
    assert result.stderr.count("\n") == 1


def test_a_group_without_a_command_shows_its_help() -> None:
    result = CliRunner().invoke(legato, ["keys"])
    assert result.exit_code == 2
    assert "revoke" in result.stderr
