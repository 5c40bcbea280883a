"""A model's thoughts as clients keep them between turns: sealed texts, which only a router opens."""

import re
from collections.abc import Iterable
from typing import Final

# What `reasoning_details` of ours are called; the router finds them by it.
REASONING_FORMAT: Final = "legato-v1"
# Between sealed thoughts of one answer.
_BETWEEN: Final = "."

_SEALED: Final = re.compile(r"[1-9][0-9]{0,8}_\w+(\.[1-9][0-9]{0,8}_\w+)*", re.ASCII)


def joined_data(*data: str) -> str:
    """Joins sealed thoughts of one answer into one text, which a router opens as well."""
    return _BETWEEN.join(filter(None, data))


def reasoning_details(data: str) -> list[dict[str, object]]:
    """Renders sealed thoughts in OpenRouter's form, which its clients send back."""
    return [{"type": "reasoning.encrypted", "format": REASONING_FORMAT, "index": 0, "data": data}]


def past_reasoning(data: Iterable[str]) -> dict[str, object]:
    """Returns the fields of an assistant's message for its thoughts, without those that were sealed elsewhere."""
    sealed = joined_data(*(each for each in data if _SEALED.fullmatch(each)))
    return {"reasoning_details": reasoning_details(sealed)} if sealed else {}
