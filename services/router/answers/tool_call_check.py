"""Counts the tool calls of an answer that a client could carry out."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from legato_protos.router.v1.router_pb2 import ToolCallDelta
from services.router.providers.base import UNREADABLE
from services.router.schema.tools import Tools

# Of all calls of an answer. They are not judged if they are longer, so that they need not be kept.
LONGEST_ARGUMENTS_CHARACTERS: Final = 256 * 1024


class ToolCallCheck:
    """Checks that calls name a function that was offered, and that their arguments are a JSON object."""

    def __init__(self, tools: Tools) -> None:
        """Keeps only the names of the functions, if they can be read."""
        self._offered = tools.names
        self._names: dict[int, str] = {}
        self._arguments: dict[int, list[str]] = {}
        self._characters = 0

    def add(self, deltas: Iterable[ToolCallDelta]) -> None:
        for delta in deltas:
            if delta.name:
                self._names[delta.index] = delta.name
            self._characters += len(delta.arguments)
            if self._characters <= LONGEST_ARGUMENTS_CHARACTERS:
                self._arguments.setdefault(delta.index, []).append(delta.arguments)

    def count(self, *, is_cut: bool) -> tuple[int, int]:
        """Returns the number of calls, and of the valid ones. `is_cut` leaves out the last, which may be incomplete."""
        if self._characters > LONGEST_ARGUMENTS_CHARACTERS:
            return 0, 0
        judged = sorted(self._names)[: -1 if is_cut else None]
        valid = [
            index
            for index in judged
            if (self._offered is None or self._names[index] in self._offered)
            and is_object("".join(self._arguments.get(index, ())))
        ]
        return len(judged), len(valid)


def is_object(arguments: str) -> bool:
    """Returns whether arguments are a JSON object."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Any])
    except UNREADABLE:
        return False
    return True
