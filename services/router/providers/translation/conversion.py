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
# Objects are converted, and their texts only copied: so many bytes of them take as long as one of an object.
TEXT_BYTES_PER_OBJECT_BYTE: Final = 16


async def convert(call: ProviderCall, conversion: Callable[[ProviderCall], _Converted]) -> _Converted:
    messages = call.messages
    work_bytes = messages.size_bytes
    if messages.object_bytes:
        # Unless messages were changed, and so not measured.
        work_bytes = min(work_bytes, messages.object_bytes + work_bytes // TEXT_BYTES_PER_OBJECT_BYTE)
    if work_bytes + len(call.tools.json) > LONGEST_AT_ONCE_BYTES:
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
