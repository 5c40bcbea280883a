"""Converts prompts for providers with another format than the client's.

A prompt may have a hundred thousand messages, parts or calls. A long one is converted in a thread, so that the event
loop goes on; a short one never waits.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw

from services.router.providers.base import ProviderCall

_Converted = TypeVar("_Converted")

# Converting this much takes some milliseconds.
LONGEST_AT_ONCE_BYTES: Final = 64 * 1024


async def convert(call: ProviderCall, conversion: Callable[[ProviderCall], _Converted]) -> _Converted:
    if call.messages.size_bytes + len(call.tools.json) > LONGEST_AT_ONCE_BYTES:
        return await asyncio.to_thread(conversion, call)
    return conversion(call)


def write_list(elements: Iterable[object]) -> Raw:
    return joined([msgspec.json.encode(element) for element in elements])


def joined(elements_json: list[bytes]) -> Raw:
    return Raw(b"[" + b",".join(elements_json) + b"]")


def merged(ours: Mapping[str, object], added: Mapping[str, object]) -> dict[str, object]:
    """Merges two objects recursively; `added` takes precedence."""
    both = dict(ours)
    for name, value in added.items():
        under = both.get(name)
        both[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both
