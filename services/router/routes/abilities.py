"""Reads what a model takes of a request, where the routes file states it."""

from dataclasses import replace
from typing import Any, Final, get_args, get_type_hints

from services.router.providers.abilities import EFFORTS, Abilities
from services.router.routes import file as kinds
from services.router.routes.file import Table

_TYPES: Final = get_type_hints(Abilities)
# The words that a key may have.
_WORDS: Final = {
    "thinking": tuple(filter(None, get_args(_TYPES["thinking"]))),
    "thinks": get_args(_TYPES["thinks"]),
    "thinking_off": ("disabled", "between_tools"),
    "sampling": get_args(_TYPES["sampling"]),
    "output_field": ("max_tokens", "max_completion_tokens"),
    "api": tuple(filter(None, get_args(_TYPES["api"]))),
    "past_reasoning": get_args(_TYPES["past_reasoning"]),
}


def read_abilities(table: Table, known: Abilities) -> Abilities:
    """Reads the abilities of a model; those that the table does not name are as they are known."""
    changed: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        if not table.has(name):
            continue
        if kind is bool:
            changed[name] = table.read(name, kinds.FLAG)
        elif name == "refused":
            changed[name] = frozenset(table.read(name, kinds.NAMES))
        elif name == "efforts":
            changed[name] = _read_efforts(table)
        else:
            changed[name] = table.choose(name, _WORDS[name])
    table.finish()
    return replace(known, **changed)


def _read_efforts(table: Table) -> tuple[str, ...]:
    efforts = table.read("efforts", kinds.TEXTS)
    if unknown := [effort for effort in efforts if effort not in EFFORTS]:
        table.mistake("efforts", f'has "{unknown[0]}", but may only have {", ".join(EFFORTS)}')
    return tuple(effort for effort in EFFORTS if effort in efforts)
