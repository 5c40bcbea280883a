"""The options of every command: --data and --json, before its arguments or after them, or before the command."""

import functools
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cli.output import show_fields, show_json, show_table

if TYPE_CHECKING:
    from cli.connection import ServiceStubs

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_DATA = "cli.data"
_JSON = "cli.json"


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

    def show(self, thing: dict[str, Any]) -> None:
        """Prints one thing."""
        show_json(thing) if self.json else show_fields({name: _for_people(value) for name, value in thing.items()})

    def show_list(self, things: list[dict[str, Any]], columns: list[str]) -> None:
        """Prints a list; without --json only its columns."""
        if self.json:
            show_json(things)
        else:
            show_table(columns, [[_for_people(thing[column]) for column in columns] for thing in things])


def _for_people(value: Any) -> Any:
    return ", ".join(str(item) for item in value) if isinstance(value, list) else value


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    # Inner contexts share the outer one's meta and are parsed later: the option nearest to the command wins.
    if value == "":
        raise click.BadParameter("name a folder.")
    if value:
        context.meta[_DATA if parameter.name == "data" else _JSON] = value


def shared_options(command: CommandT) -> CommandT:
    add_data = click.option(
        "--data",
        metavar="DIR",
        expose_value=False,
        callback=_remember,
        help="The service's data folder.  [default: $LEGATO_DATA, or .legato]",
    )
    add_json = click.option("--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON.")
    return add_data(add_json(command))


def _require_text(given: Iterable[object]) -> None:
    """Raises for text that is not UTF-8: Python decodes a shell's other bytes to surrogates, which cannot be sent.
    Paths may have them."""
    try:
        "".join(value for value in given if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        raise click.UsageError("arguments must be UTF-8 text.") from None


def takes_invocation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the command its `Invocation` as the first argument, and the shared options."""

    @shared_options
    @functools.wraps(command)
    def with_invocation(**given: Any) -> Any:
        _require_text(given.values())
        return command(Invocation(click.get_current_context()), **given)

    return with_invocation
