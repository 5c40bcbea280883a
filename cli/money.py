"""A click type for an amount of dollars."""

import click

from services.chassis.money import LARGEST_BOOKING_NANOS, parse_usd


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
