"""Fields that the routes file adds to every request."""

from typing import Any


def merged(ours: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Both, table by table; of what is in both, the added one."""
    both = dict(ours)
    for name, value in added.items():
        under = both.get(name)
        both[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both
