"""Tells what differs between two versions of routes, line by line and without secrets."""

import re
from collections.abc import Iterable
from dataclasses import fields
from difflib import unified_diff
from enum import Enum
from itertools import islice
from typing import Any, Final

from services.router.routes.class_route import SETTINGS
from services.router.routes.routes import Routes
from services.router.routes.target import Target

# Of an address: it may have a token. A user and a password are refused.
_QUERY: Final = re.compile(r"\?.*")
# Named, but never shown.
_HIDDEN: Final = {"api_key": "key", "extra_json": "body", "headers": "headers", "query": "query"}


def find_changes(current: Routes, wanted: Routes) -> list[str]:
    """Returns lines that begin with - where they would go, with + where they would come; none if nothing changes."""
    # Without the two lines that name the files.
    difference = islice(unified_diff(_lines(current), _lines(wanted), n=0, lineterm=""), 2, None)
    found = [f"{line[0]} {line[1:]}" for line in difference if line[0] in "-+"]
    return [*found, *_hidden_changes(current, wanted)]


def _lines(routes: Routes) -> list[str]:
    lines = []
    for class_id, route in sorted(routes.classes.items()):
        lines.append(f"{class_id}: character {routes.characters[class_id].version}")
        for number, tier in enumerate(route.tiers, start=1):
            for member in tier:
                target, weight = member.target, f", weight {member.weight}" if len(tier) > 1 else ""
                lines.append(f"{class_id}: {number}. {_model(target, weight)}")
        # One line each, so that a difference has only the lines that change.
        lines.extend(f"{class_id}: {name} {value}" for name, value in _set_in(route).items() if name in SETTINGS)
        for name, target, share in route.trials:
            lines.append(f"{class_id}: {name} {_model(target, f', {share}')}")
    for name, provider in sorted(routes.providers.items()):
        lines.append(f"provider {name}: {provider.kind}{_terms(provider, without={'name', 'kind', *_HIDDEN})}")
    return lines


def _model(target: Target, share: str) -> str:
    terms = _terms(target, without={"provider", "model_name"})
    return f"{target.model_name} of {target.provider}{share}{terms}"


def _terms(described: Any, without: Iterable[str]) -> str:
    return "".join(f", {name} {_masked(value)}" for name, value in _set_in(described).items() if name not in without)


def _set_in(described: Any) -> dict[str, Any]:
    """Returns the fields that differ from their defaults, by name."""
    values = {each.name: (getattr(described, each.name), each.default) for each in fields(described)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _masked(value: object) -> object:
    """Returns an address without its query, which may be secret, and a choice by its word."""
    if isinstance(value, Enum):
        return value.value
    return _QUERY.sub("?***", value) if isinstance(value, str) else value


def _hidden_changes(current: Routes, wanted: Routes) -> list[str]:
    found = []
    for name, provider in sorted(wanted.providers.items()):
        before = current.providers.get(name)
        for field, word in _HIDDEN.items():
            if before is not None and getattr(before, field) != getattr(provider, field):
                found.append(f"+ provider {name}: another {word}")
    return found
