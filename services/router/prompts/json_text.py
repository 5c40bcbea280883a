"""What stands as JSON in a message: a list or not, and the text of a string, in slices, for to decode megabytes in one
go would hold up every other chat."""

import re
from collections.abc import Iterator

import msgspec

SLICE_BYTES = 16 * 1024

_string = msgspec.json.Decoder(str)
# On to a place where a string may be cut: neither inside of a character nor between the two halves of one that is
# written as two escapes. Never further than a slice.
_WHOLE_CHARACTERS = re.compile(
    rb"(?:[^\"\\\x80-\xff]{1,256}+|[\xc0-\xff][\x80-\xbf]*+|\\u[dD][89abAB]..\\u....|\\u....|\\[^u]){1,64}+", re.DOTALL
)


def is_list(content: msgspec.Raw) -> bool:
    """Of a value that was read out of JSON; an empty one stands for none."""
    return bytes(memoryview(content)[:1]) == b"["


def text_slices(string_json: msgspec.Raw) -> Iterator[str]:
    """Of a string that is valid JSON, and begins with its quote."""
    given = memoryview(string_json)
    if len(given) <= SLICE_BYTES:
        yield _string.decode(given)
        return
    begin = at = 1
    end = len(given) - 1
    while at < end:
        stretch = _WHOLE_CHARACTERS.match(given, at, end)
        if stretch is None:
            raise msgspec.DecodeError("not a JSON string")
        at = stretch.end()
        if at - begin >= SLICE_BYTES or at == end:
            yield _string.decode(b'"' + given[begin:at] + b'"')
            begin = at
