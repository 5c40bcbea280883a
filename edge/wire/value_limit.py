"""Limits the number of values in a JSON text before it is decoded.

Two bytes of JSON can be an object of some hundred bytes in memory, and decoding millions of them blocks the event loop.
So a text with more values than any chat needs is refused and never decoded.
"""

from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

# List elements and object fields, at any depth; and as many lists and objects. A hundred thousand messages with parts
# and calls have fewer.
MOST_VALUES: Final = 500_000

_SLICE_BYTES: Final = 64 * 1024
_COUNTED_BYTES: Final = 64 * 1024
# All bytes but commas and openings.
_NO_SIGNS: Final = bytes(byte for byte in range(256) if byte not in b",[{")


async def check_values(text_json: bytes, yielder: Yielder, most: int = MOST_VALUES) -> None:
    """Raises if there are too many values. Counts commas outside of strings, one before each value but the first of a
    list or object."""
    if len(text_json) <= most or await _has_few(text_json, yielder, most):
        return
    commas = openings = begin = 0
    is_inside = False
    while begin < len(text_json):
        piece = text_json[begin : begin + _SLICE_BYTES]
        begin += len(piece)
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            # The escaped byte is the next one, which then does not end a string.
            begin += 1
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        commas += outside.count(b",")
        openings += outside.count(b"[") + outside.count(b"{")
        if commas > most:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("values_most", most=most))
        if openings > most:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("lists_most", most=most))
        await yielder.spend(len(piece))


async def _has_few(text_json: bytes, yielder: Yielder, most: int) -> bool:
    """Returns whether there are few enough even if all of them were outside of strings, as in nearly every text. To
    find that out takes a fraction of the time."""
    commas = openings = 0
    for begin in range(0, len(text_json), _COUNTED_BYTES):
        piece = text_json[begin : begin + _COUNTED_BYTES]
        signs = piece.translate(None, _NO_SIGNS)
        commas += signs.count(b",")
        openings += len(signs) - signs.count(b",")
        if commas > most or openings > most:
            return False
        await yielder.spend(len(piece) // 2)
    return True
