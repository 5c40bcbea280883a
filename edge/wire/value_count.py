"""How many values a JSON text has, told before anything is built of it.

Two bytes of JSON can be an object of some hundred bytes in memory, and to build millions of them holds up everybody
else. So a text that has more than any chat needs is refused for their number, and never read.
"""

from typing import Final

from edge.wire.validation import invalid
from services.chassis.timing.yielding import Yielder

# Elements of lists and fields of objects, at any depth; and as many lists and objects. A hundred thousand messages with
# parts and calls have fewer.
MOST_VALUES: Final = 500_000

_SLICE_BYTES: Final = 64 * 1024


async def check_values(text_json: bytes, yielder: Yielder, most: int = MOST_VALUES) -> None:
    """Each value but the first of its list or object has a comma before it. What stands in strings is none, but to
    count it as well is far cheaper, and mostly enough."""
    if len(text_json) <= most:
        return
    commas = openings = 0
    for begin in range(0, len(text_json), _SLICE_BYTES):
        end = begin + _SLICE_BYTES
        commas += text_json.count(b",", begin, end)
        openings += text_json.count(b"[", begin, end) + text_json.count(b"{", begin, end)
        if yielder.is_due(_SLICE_BYTES // 8):
            await yielder.pause()
    if max(commas, openings) > most:
        await _check_outside_strings(text_json, yielder, most)


async def _check_outside_strings(text_json: bytes, yielder: Yielder, most: int) -> None:
    commas = openings = begin = 0
    is_inside = False
    while begin < len(text_json):
        piece = text_json[begin : begin + _SLICE_BYTES]
        begin += len(piece)
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            # What it escapes is the next byte, which is no end of a string then.
            begin += 1
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        commas += outside.count(b",")
        openings += outside.count(b"[") + outside.count(b"{")
        if commas > most:
            raise invalid(f"The body has more than {most:,} values.")
        if openings > most:
            raise invalid(f"The body has more than {most:,} lists and objects.")
        if yielder.is_due(len(piece)):
            await yielder.pause()
