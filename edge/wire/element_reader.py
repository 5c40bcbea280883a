"""Splits lists of a request that become parts of a chat, and counts all their elements."""

from typing import Final

import msgspec
from msgspec import Raw

from edge.wire.chat_request import check_count
from edge.wire.checked_json import decode_part
from services.chassis.timing.yielder import Yielder

_list_decoder: Final = msgspec.json.Decoder(list[Raw])


def split_list(given: bytes | Raw, place: str) -> list[Raw]:
    return decode_part(_list_decoder, given, place)


class ElementReader:
    def __init__(self, yielder: Yielder) -> None:
        self._yielder = yielder
        self._elements = 0

    def _split(self, given: bytes | Raw, place: str) -> list[Raw]:
        elements = split_list(given, place)
        self._count(len(elements), place)
        return elements

    def _count(self, elements: int, place: str) -> None:
        self._elements += elements
        check_count(self._elements, place)
