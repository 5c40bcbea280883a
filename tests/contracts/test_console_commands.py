"""Commands that the console's pages show are commands that `legato` accepts."""

import re
import shlex
from pathlib import Path

import click

from cli.main import legato

TEMPLATES = Path(__file__).parents[2] / "console" / "templates"
# `m.cli("id", "legato keys revoke " ~ key.key_id)`: text, with expressions in between.
SHOWN = re.compile(r'm\.cli\("[\w-]+",(.*)\) \}\}')
TEXT_OR_EXPRESSION = re.compile(r'"([^"]*)"\s*(~)?|(\([^)]*\)|[\w.]+)\s*(~)?')


def command_of(expression: str) -> str:
    """Returns the command with `forte` for everything that a page fills in, but a date for the days of a period."""
    return "".join(
        match[1] if match[1] is not None else "2026-11-15" if match[0].startswith("period.") else "forte"
        for match in TEXT_OR_EXPRESSION.finditer(expression.strip())
    )


SHOWN_COMMANDS = sorted(
    command_of(found) for page in TEMPLATES.glob("*.html") for found in SHOWN.findall(page.read_text())
)


def test_pages_show_commands() -> None:
    assert len(SHOWN_COMMANDS) >= 5


def test_every_command_on_a_page_parses() -> None:
    for shown in SHOWN_COMMANDS:
        parse(shown)


def parse(shown: str) -> None:
    program, *arguments = shlex.split(shown)
    assert program == "legato"
    command: click.Command = legato
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and not (command.invoke_without_command and arguments[0].startswith("-")):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, name
        command = found
        context = click.Context(command, info_name=name, parent=context)
    command.parse_args(context, arguments)
