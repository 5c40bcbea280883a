"""Options that take one or more of a few names: `key`, or `key,class`."""

from collections.abc import Sequence

import click


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
