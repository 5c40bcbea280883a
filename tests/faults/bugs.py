"""Mistakes to make a process with, so that it can be shown that the harness would see them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """`apply` is called in a process that was just forked, before it runs."""

    name: str
    apply: Callable[[], None]


BUGS: dict[str, Bug] = {}
