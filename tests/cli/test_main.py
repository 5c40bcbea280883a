import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.command import HelpLine
from cli.main import legato
from tests.contracts.product import ROOT, product_modules

# A module with a command, as a contributor adds it.
HELLO = '''
import decimal

from cli.command import HelpLine, Invocation, command

HELP = HelpLine(15, "Greet whoever calls.")


@command()
def hello(invocation: Invocation) -> None:
    """Greet whoever calls."""
    invocation.report("Hello.", {"greeting": "Hello."})
'''


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


def test_help_lists_every_module_that_has_a_command_of_its_name() -> None:
    """Help is made from the sources, so it is compared with what the modules declare when they are imported."""
    declared: dict[str, HelpLine] = {}
    for path in product_modules():
        if path.is_relative_to("cli/commands") and path.name != "__init__.py":
            module = importlib.import_module(".".join(path.with_suffix("").parts))
            if isinstance(getattr(module, path.stem, None), click.Command):
                assert path.stem not in declared
                declared[path.stem] = module.HELP
    result = CliRunner().invoke(legato, ["--help"], terminal_width=200)
    assert result.exit_code == 0
    _, _, listed = result.stdout.partition("Commands:\n")
    lines = [tuple(line.split(maxsplit=1)) for line in listed.splitlines()]
    assert lines == [(name, help_line.text) for name, help_line in sorted(declared.items(), key=lambda item: item[1])]
    assert lines[0][0] == "up"


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "zip"])
def test_module_in_the_folder_of_commands_is_a_command(tmp_path: Path, is_packed: bool) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(ROOT / "cli", sources / "cli", ignore=shutil.ignore_patterns("__pycache__"))
    (sources / "cli/commands/service/hello.py").write_text(HELLO)
    path = shutil.make_archive(str(sources), "zip", sources) if is_packed else str(sources)
    program = (
        "import sys\nfrom cli.main import legato\n"
        "try:\n    legato(sys.argv[1:])\nfinally:\n    print('imported:', 'decimal' in sys.modules)"
    )

    def run(*arguments: str) -> str:
        command = [sys.executable, "-c", program, *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    *_, commands = run("--help").partition("Commands:\n")
    assert [line.split()[0] for line in commands.splitlines()][:3] == ["up", "hello", "status"]
    assert "  hello        Greet whoever calls.\n" in commands
    assert commands.endswith("imported: False\n")
    assert run("hello") == "Hello.\nimported: True\n"


def test_every_command_has_help_and_takes_data_and_json() -> None:
    paths = [path for path, _ in every_command(legato)]
    assert paths
    for path in paths:
        result = CliRunner().invoke(legato, [*path, "--help"])
        assert result.exit_code == 0, path
        assert "--data DIR" in result.stdout, path
        assert "--json" in result.stdout, path
        assert len(result.stdout.splitlines()[2].strip()) > 10, path


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
