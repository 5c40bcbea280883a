"""One command: its options --data and --json, which may also stand before it, its services, and its output."""

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cli.output import show_fields, show_json, show_table, stream_csv, stream_json

if TYPE_CHECKING:
    from cli.connection import ServiceStubs

_DATA = "cli.data"
_JSON = "cli.json"


class HelpLine(NamedTuple):
    """The line of a command in `legato --help`. Its module declares it as `HELP`, which makes it a command.

    The line is read from the source, without importing it, so its place and text are literals.
    """

    # Lines are sorted by place; with gaps, so that a new one fits between.
    place: int
    text: str


class Invocation:
    """One run of one command."""

    def __init__(self, context: click.Context) -> None:
        self._context = context
        self.json = bool(context.meta.get(_JSON))
        # The value of --data, wherever it was given.
        self.given_data: str | None = context.meta.get(_DATA)

    @functools.cached_property
    def data(self) -> Path:
        if self.given_data:
            return Path(self.given_data)
        from cli.settings import CommandSettings, read_settings

        return read_settings(CommandSettings).data

    @functools.cached_property
    def services(self) -> "ServiceStubs":
        from cli.connection import running_services

        # A test passes its own services as the context's object.
        services: ServiceStubs | None = self._context.obj
        if services is None:
            # --data wins over addresses in the settings.
            services = running_services(self.data, {} if self.given_data else os.environ)
        self._context.call_on_close(services.close)
        return services

    def report(self, text: str, thing: Mapping[str, object]) -> None:
        """Prints a text, or with --json what it is about."""
        show_json(thing) if self.json else click.echo(text)

    def show(self, thing: Mapping[str, object]) -> None:
        """Prints one thing."""
        show_json(thing) if self.json else show_fields({name: _for_people(value) for name, value in thing.items()})

    def show_list(self, things: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
        """Prints a list; without --json only its columns."""
        if self.json:
            show_json(things)
        else:
            show_table(columns, [[_for_people(thing[column]) for column in columns] for thing in things])

    def stream(self, things: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
        """Prints a list as its things come, which need not fit into memory: as CSV or JSON."""
        if self.json:
            stream_json(things)
        else:
            stream_csv(columns, things)


def _for_people(value: object) -> object:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else value


class Command(click.Command):
    """A command whose function gets its `Invocation` as the first argument, and which has the shared options."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += shared_options()

    def invoke(self, ctx: click.Context) -> object:
        _require_text(ctx.params.values())
        return self.callback and ctx.invoke(self.callback, Invocation(ctx), **ctx.params)


command = functools.partial(click.command, cls=Command)


class CommandGroup(click.Group):
    """A command of several commands, which are added by `group.command()`."""

    command_class = Command


def command_group(name: str, help_text: str) -> CommandGroup:
    return CommandGroup(name, help=help_text, params=shared_options())


def shared_options() -> list[click.Parameter]:
    data = "The service's data folder.  [default: $LEGATO_DATA, or .legato]"
    return [
        click.Option(["--data"], metavar="DIR", expose_value=False, callback=_remember, help=data),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=_remember, help="Print JSON."),
    ]


def _remember(context: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
    # Inner contexts share the outer one's meta and are parsed later: the option nearest to the command wins.
    if value == "":
        raise click.BadParameter("name a folder.")
    if value:
        context.meta[_DATA if parameter.name == "data" else _JSON] = value


def _require_text(given: Iterable[object]) -> None:
    """Raises for text that is not UTF-8: Python decodes a shell's other bytes to surrogates, which cannot be sent.
    Paths may have them."""
    try:
        "".join(value for value in given if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        raise click.UsageError("arguments must be UTF-8 text.") from None
