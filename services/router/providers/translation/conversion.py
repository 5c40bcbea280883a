"""Converts long prompts in slices, for providers with another format than the client's.

A prompt may have a hundred thousand messages, parts or calls. They are converted one by one, yielding to the
event loop between slices; a short prompt never yields.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.chassis.timing.deadlines import Yielder

# Converting this much takes some milliseconds.
SLICE_BYTES: Final = 256 * 1024
# The fixed cost of an element, as a number of bytes.
BYTES_PER_ELEMENT: Final = 256


class ConversionYielder(Yielder):
    """Decides when the conversion of one prompt yields to the event loop."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(SLICE_BYTES)

    def is_due_after(self, element_json: bytes | Raw) -> bool:
        return self.is_due(len(memoryview(element_json)) + BYTES_PER_ELEMENT)


async def write_list(elements: Iterable[Any], yielder: ConversionYielder) -> Raw:
    written = []
    for element in elements:
        element_json = msgspec.json.encode(element)
        written.append(element_json)
        if yielder.is_due_after(element_json):
            await yielder.pause()
    return joined(written)


def joined(elements_json: list[bytes]) -> Raw:
    return Raw(b"[" + b",".join(elements_json) + b"]")


def merged(ours: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """Merges two objects recursively; `added` takes precedence."""
    both = dict(ours)
    for name, value in added.items():
        under = both.get(name)
        both[name] = merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return both
