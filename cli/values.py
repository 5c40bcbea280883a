"""Parses the values of options: limits, classes, amounts of money, times, lists of names."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, TypeVar

import click

from services.chassis.money import LARGEST_BOOKING_NANOS, parse_usd
from services.rules.largest_limits import LARGEST_LIMITS
from services.rules.model_classes import CLASSES

if TYPE_CHECKING:
    from legato_protos.auth.v1.auth_pb2 import UpdateAccountRequest, UpdateKeyRequest
    from legato_protos.auth.v1.users_pb2 import ListAuditEventsRequest
    from legato_protos.metering.v1.statements_pb2 import ListLedgerEntriesRequest, ListRequestsRequest

CommandT = TypeVar("CommandT", bound=Callable[..., object])

account_argument = click.argument("account_id", metavar="ID")

LIMITS = {
    "requests_per_minute": "Requests per minute",
    "tokens_per_minute": "Tokens per minute",
    "concurrent_requests": "Concurrent requests",
}


def limit_options(whose: str) -> Callable[[CommandT], CommandT]:
    """Adds an option for each limit; the command gets them by the names of the messages' fields, None if not given."""

    def add(command: CommandT) -> CommandT:
        for name, what in reversed(LIMITS.items()):
            option = f"--{name.replace('_', '-')}"
            amount = click.IntRange(min=0, max=LARGEST_LIMITS[name])
            command = click.option(option, type=amount, help=f"{what} {whose}")(command)
        return command

    return add


ALL_CLASSES = "all"


def classes_option(help_text: str) -> Callable[[CommandT], CommandT]:
    """Adds --classes; the command gets the names, [ALL_CLASSES], or None if not given."""
    return click.option("--classes", type=OneOrMoreOf((*CLASSES, ALL_CLASSES)), help=help_text)


def put_classes(request: "UpdateAccountRequest | UpdateKeyRequest", classes: Sequence[str] | None) -> None:
    """Puts what was given by --classes into a request."""
    if classes is None:
        return
    if ALL_CLASSES in classes:
        request.allow_all_classes = True
    else:
        request.allowed_classes.class_ids.extend(dict.fromkeys(classes))


class UsdAmount(click.ParamType[int]):
    name = "amount"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            nanos = parse_usd(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if abs(nanos) > LARGEST_BOOKING_NANOS:
            self.fail("the amount must be at most a million dollars.", param, ctx)
        return nanos


USD = UsdAmount()


class OneOrMoreOf(click.ParamType[list[str]]):
    name = "names"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = choices

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{','.join(self.choices)}]"

    def convert(self, value: str | list[str], param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in value.split(",")]
        if not all(name in self.choices for name in names):
            self.fail(f"choose from {', '.join(self.choices)}.", param, ctx)
        return names


# All usage lies between these, and both are far from the limits of datetime.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9999, 1, 1, tzinfo=UTC)


class Moment(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            if len(value) == len("2026-11-15"):
                moment = datetime.combine(date.fromisoformat(value), time(), UTC)
            else:
                moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail("give a date, 2026-11-15, or a time with its zone, 2026-11-15T08:00:00Z.", param, ctx)
        return min(max(moment, EARLIEST), LATEST).astimezone(UTC)


def period_options(command: CommandT) -> CommandT:
    add_start = click.option("--from", "start", type=Moment(), help="Start of the period.  [default: the first]")
    add_end = click.option("--to", "end", type=Moment(), help="End of the period, exclusive.  [default: the last]")
    return add_start(add_end(command))


def put_period(
    request: "ListAuditEventsRequest | ListLedgerEntriesRequest | ListRequestsRequest",
    start: datetime | None,
    end: datetime | None,
) -> None:
    """Puts what was given by --from and --to into a request."""
    if start is not None and end is not None and start >= end:
        raise click.UsageError("--from must be before --to.")
    if start is not None:
        request.start_time.FromDatetime(start)
    if end is not None:
        request.end_time.FromDatetime(end)
