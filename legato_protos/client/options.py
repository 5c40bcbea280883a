"""Checks the names of options, which Python does not do for those that a TypedDict describes."""

from collections.abc import Mapping


def check_names(given: Mapping[str, object], known: type) -> None:
    """Raises TypeError for a name that the TypedDict `known` does not have, since leaving it out could cost money."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"There is no option {name!r}.")
