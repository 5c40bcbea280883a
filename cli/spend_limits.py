"""Spend limits as options of commands: dollars a day, a month and in all."""

from collections.abc import Mapping
from typing import Final

import click

from cli.values import USD, CommandT, UsdAmount
from legato_protos.metering.v1.spend_limits_pb2 import SpendLimits

PERIODS: Final = ("day", "month", "total")
UNLIMITED: Final = "none"
_OF_PERIODS: Final = {
    "day": "Dollars a day, in UTC",
    "month": "Dollars a calendar month, in UTC",
    "total": "Dollars in all",
}


class LimitAmount(UsdAmount):
    """Dollars, or `none`, which is -1 here."""

    name = "amount|none"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value == UNLIMITED:
            return -1
        nanos = USD.convert(value, param, ctx)
        if nanos < 0:
            self.fail("a limit must not be negative.", param, ctx)
        return nanos


LIMIT: Final = LimitAmount()


def spend_limit_options(command: CommandT) -> CommandT:
    """Adds an option for each period; the command gets what `to_spend_limits` takes."""
    for period, what in reversed(_OF_PERIODS.items()):
        command = click.option(f"--{period}", type=LIMIT, help=f"{what}; `none` for no limit.")(command)
    return command


def to_spend_limits(known: SpendLimits, amounts: Mapping[str, int | None]) -> SpendLimits:
    """Returns limits with what the options give; the others stay as they are."""
    wanted = SpendLimits()
    wanted.CopyFrom(known)
    for period, nanos in amounts.items():
        if nanos is not None and nanos >= 0:
            setattr(wanted, f"{period}_nanos", nanos)
        elif nanos is not None:
            wanted.ClearField(f"{period}_nanos")  # type: ignore[arg-type]
    return wanted
