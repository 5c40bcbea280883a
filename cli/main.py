"""`legato`: the commands by name. Each command's imports are lazy, so that help is printed at once."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from cli.options import shared_options

MISUSE = 2
INTERRUPTED = 130

# Each command with its package in cli/commands, which has a module of its name, and its help.
COMMANDS = {
    "up": ("service", "Start the whole service and keep it running."),
    "status": ("service", "List the service's processes."),
    "accounts": ("account", "Create, list and change accounts."),
    "keys": ("account", "Create, list and revoke API keys."),
    "users": ("account", "Invite and disable the users of the web console."),
    "console": ("account", "Create a link that signs in to the web console."),
    "credits": ("ledger", "Grant and adjust credit, and show balances."),
    "limits": ("account", "Show and set how much an account or a key may spend."),
    "notices": ("account", "Show and set what an account's owners are told, and how."),
    "memory": ("account", "Manage the notes for an account's chats."),
    "attachments": ("account", "Manage the documents for an account's chats."),
    "usage": ("ledger", "Show an account's usage."),
    "requests": ("ledger", "Show the receipts of an account's requests."),
    "prices": ("ledger", "Show the prices."),
    "routes": ("service", "Check and reload the routes, and show the state of their models."),
    "maintenance": ("service", "Refuse new chats for a while, on every edge."),
    "certs": ("service", "Create certificates for services on TCP."),
    "audit": ("ledger", "Check that the ledger is consistent."),
    "migrate": ("service", "Migrate the databases."),
    "version": ("service", "Print the version."),
}


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

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Reports an error as one line on stderr and an exit code: 1 refused, 2 misuse, 3 not running."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
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
@shared_options
def legato() -> None:
    """A chat-completion service that speaks OpenAI's wire format.

    Start it with `legato up`; the other commands talk to the running service over its private sockets. They exit
    with 1 if the service refuses, 2 on a usage error and 3 if the service is not running.
    """


def main() -> None:
    legato(prog_name="legato")
