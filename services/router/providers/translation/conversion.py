"""The pace at which prompts are converted for providers that speak another language than the client.

A prompt may have a hundred thousand messages, parts or calls. They are read and written one by one, in slices, between
which others have their turn; whoever has few of them never waits.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.chassis.timing.yielding import Yielder

# To convert this much takes some milliseconds.
SLICE_BYTES: Final = 256 * 1024
# What it takes to convert an element, however short, as if it were bytes.
BYTES_PER_ELEMENT: Final = 256

_list = msgspec.json.Decoder(list[Raw])


class ConversionYielder(Yielder):
    """Those of one prompt."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(SLICE_BYTES)

    def is_due_after(self, element_json: bytes | Raw) -> bool:
        return self.is_due(len(memoryview(element_json)) + BYTES_PER_ELEMENT)


async def read_list(list_json: bytes | Raw, yielder: ConversionYielder) -> list[Raw]:
    """Its elements, as the JSON they are."""
    elements = _list.decode(list_json)
    # That takes far less than to convert them.
    if yielder.is_due(len(memoryview(list_json)) // 8):
        await yielder.pause()
    return elements


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
