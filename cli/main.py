"""`legato`: the commands by name. A command is imported only when it is called, so that help is printed at once."""

import ast
import functools
import importlib
import pkgutil
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

import cli.commands
from cli.command import HelpLine, shared_options

MISUSE = 2
INTERRUPTED = 130
_HELP = re.compile(r"^HELP = HelpLine\((.*?)\)$", re.DOTALL | re.MULTILINE)


class CommandModule(NamedTuple):
    help: HelpLine
    # Has the command as the attribute of its name.
    path: str


@functools.cache
def find_commands() -> Mapping[str, CommandModule]:
    """Finds the modules in `cli.commands` that declare a `HelpLine`, by the names of their commands and in the order
    of their places. It reads their sources, as importing them takes long."""
    found = {}
    for module in pkgutil.walk_packages(cli.commands.__path__, "cli.commands."):
        package, _, name = module.name.rpartition(".")
        source = None if module.ispkg else pkgutil.get_data(package, f"{name}.py")
        if source and (declared := _HELP.search(source.decode())):
            found[name] = CommandModule(HelpLine(*ast.literal_eval(f"({declared[1]})")), module.name)
    return dict(sorted(found.items(), key=lambda item: item[1]))


class LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(find_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = find_commands().get(cmd_name)
        return module and getattr(importlib.import_module(module.path), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, module.help.text) for name, module in find_commands().items()])

    def main(self, *args: Any, **options: Any) -> Any:
        """Reports an error as one line on stderr and an exit code: 1 refused, 2 misuse, 3 not running."""
        try:
            code = super().main(*args, **{**options, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
            sys.exit(MISUSE)
        except click.ClickException as error:
            message = error.format_message()
            # Click's own messages may be wrapped; ours have several lines only for several mistakes.
            _print_error(" ".join(message.split()) if isinstance(error, click.UsageError) else message)
            sys.exit(error.exit_code)
        except click.Abort:
            _print_error("interrupted")
            sys.exit(INTERRUPTED)
        except OSError as error:
            _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _print_error(message: str) -> None:
    for line in message.splitlines():
        click.echo(f"legato: {line}", err=True)


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="legato", message="legato %(version)s")
def legato() -> None:
    """A chat-completion service that speaks OpenAI's wire format.

    Start it with `legato up`; the other commands talk to the running service over its private sockets. They exit
    with 1 if the service refuses, 2 on a usage error and 3 if the service is not running.
    """


legato.params += shared_options()


def main() -> None:
    legato(prog_name="legato")
