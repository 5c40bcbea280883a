"""Merges the fields that the routes file adds to every request."""

from typing import Any


def merged(ours: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Merges two objects recursively; `added` takes precedence."""
    both = dict(ours)
    for name, value in added.items():
        under = both.get(name)
        both[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both
