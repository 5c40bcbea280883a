"""`legato`: the commands by name. Each command's imports are lazy, so that help is printed at once."""

import importlib
import sys
from typing import Any

import click

from cli.command import COMMANDS, shared_options

MISUSE = 2
INTERRUPTED = 130


class LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"cli.commands.{package}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])

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
            _say_error(" ".join(message.split()) if isinstance(error, click.UsageError) else message)
            sys.exit(error.exit_code)
        except click.Abort:
            _say_error("interrupted")
            sys.exit(INTERRUPTED)
        except OSError as error:
            _say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
            sys.exit(1)
        sys.exit(code if isinstance(code, int) else 0)


def _say_error(message: str) -> None:
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
