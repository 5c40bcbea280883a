"""Custom tools, which take any text, as functions with that text as their one argument, which most models are told.

An edge marks such a function with what the client described, so that a router can give the tool itself to the models
that have custom tools.
"""

from typing import Final

import msgspec

# The one argument.
INPUT: Final = "input"
# The field of the function that has the form.
MARK: Final = "x-legato-custom"


class CustomForm(msgspec.Struct, omit_defaults=True, frozen=True):
    """A custom tool as the client described it, but for its name."""

    description: str = ""
    # Of a grammar.
    syntax: str | None = None
    definition: str | None = None


def to_arguments(text: str) -> str:
    return msgspec.json.encode({INPUT: text}).decode()
