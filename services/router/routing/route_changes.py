"""Tells how a routes file differs from the routes in use, line by line and without secrets."""

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from difflib import SequenceMatcher
from typing import Any, Final

from services.router.routing.routes import Routes

# In an address: a user with a password, and a query.
_SECRETS: Final = re.compile(r"//[^/@]*@|\?.*")
# Named, but never shown.
_HIDDEN: Final = {"api_key": "key", "extra_json": "body"}


def find_changes(current: Routes, wanted: Routes) -> list[str]:
    """Returns lines that begin with - where they would go, with + where they would come; none if nothing changes."""
    old, new = _lines(current), _lines(wanted)
    found = []
    for kind, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            found += [f"- {line}" for line in old[old_from:old_to]] + [f"+ {line}" for line in new[new_from:new_to]]
    return [*found, *_hidden_changes(current, wanted)]


def _lines(routes: Routes) -> list[str]:
    lines = []
    for class_id, targets in sorted(routes.classes.items()):
        lines.append(f"{class_id}: character {routes.characters[class_id].version}")
        for place, target in enumerate(targets, start=1):
            terms = _terms(target, without={"provider", "model_name"})
            lines.append(f"{class_id}: {place}. {target.model_name} of {target.provider}{terms}")
    for name, provider in sorted(routes.providers.items()):
        lines.append(f"provider {name}: {provider.kind}{_terms(provider, without={'name', 'kind', *_HIDDEN})}")
    return lines


def _terms(described: Any, without: Iterable[str]) -> str:
    """Returns the fields that differ from their defaults."""
    named = (each for each in fields(described) if each.name not in without)
    given = {each.name: getattr(described, each.name) for each in named if not _is_default(described, each)}
    return "".join(f", {name} {_masked(value)}" for name, value in given.items())


def _masked(value: object) -> object:
    """Returns an address without what may be secret in it: a password, and its query."""
    return _SECRETS.sub(_mask, value) if isinstance(value, str) else value


def _mask(found: re.Match[str]) -> str:
    return "?***" if found[0].startswith("?") else "//***@"


def _is_default(described: Any, each: Any) -> bool:
    return each.default is not MISSING and getattr(described, each.name) == each.default


def _hidden_changes(current: Routes, wanted: Routes) -> list[str]:
    found = []
    for name, provider in sorted(wanted.providers.items()):
        before = current.providers.get(name)
        for field, word in _HIDDEN.items():
            if before is not None and getattr(before, field) != getattr(provider, field):
                found.append(f"+ provider {name}: another {word}")
    return found
