"""The limits of accounts and single keys, as options and as fields."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from services.chassis.load.limits import LARGEST_LIMITS

if TYPE_CHECKING:
    from protos.auth.v1.auth_pb2 import Account, Key

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

LIMITS = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Concurrent requests",
}


def limit_options(whose: str) -> Callable[[CommandT], CommandT]:
    """Adds an option for each limit; the command gets them by name, None if not given."""

    def add(command: CommandT) -> CommandT:
        for name, what in reversed(LIMITS.items()):
            option = f"--{name.replace('_', '-')}"
            amount = click.IntRange(min=0, max=LARGEST_LIMITS[name])
            command = click.option(option, type=amount, help=f"{what} {whose}")(command)
        return command

    return add


def own_limits(owner: "Account | Key") -> dict[str, int | None]:
    """Returns the limits; None if a default applies."""
    return {name: getattr(owner, name) if owner.HasField(name) else None for name in LIMITS}  # type: ignore[arg-type]
