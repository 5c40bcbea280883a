"""An amount of dollars on the command line."""

import click

from services.chassis.money import parse_usd


class UsdAmount(click.ParamType[int]):
    name = "amount"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_usd(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)


USD = UsdAmount()
