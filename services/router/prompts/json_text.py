"""Decodes JSON strings in slices, since decoding megabytes at once would block the event loop."""

import re
from collections.abc import Iterator

import msgspec

SLICE_BYTES = 16 * 1024

_string = msgspec.json.Decoder(str)
# Matches up to a position where a string may be split: neither inside a UTF-8 sequence nor between the escapes of a
# surrogate pair. Never longer than a slice.
_WHOLE_CHARACTERS = re.compile(
    rb"(?:[^\"\\\x80-\xff]{1,256}+|[\xc0-\xff][\x80-\xbf]*+|\\u[dD][89abAB]..\\u....|\\u....|\\[^u]){1,64}+", re.DOTALL
)


def text_slices(string_json: msgspec.Raw) -> Iterator[str]:
    """Yields the decoded slices of a string that is valid JSON, quotes included."""
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
