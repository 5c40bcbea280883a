"""The message that opens a chat at a router, with a prompt that is copied once.

Inside a message of protobuf, a prompt is copied when it is put there, when that is encoded, and when the result becomes
`bytes`. So it stands beside the message, and is joined with what protobuf encodes of the other fields.
"""

from collections.abc import Iterator
from typing import Final

from legato_protos.router.v1.router_pb2 import ChatOpen, ChatRequest

# The type of a field that has a length before its bytes.
_LENGTH_DELIMITED: Final = 2


class ChatOpening:
    """A `ChatRequest` with these fields and values, to be sent in its place."""

    __slots__ = ("_messages_json", "_tools_json", "fields")

    def __init__(self, fields: ChatOpen, messages_json: bytes, tools_json: bytes) -> None:
        """Takes all fields but these two."""
        self.fields = fields
        self._messages_json = messages_json
        self._tools_json = tools_json

    @property
    def size_bytes(self) -> int:
        """The size, but for the few bytes around the values."""
        return self.fields.ByteSize() + len(self._messages_json) + len(self._tools_json)

    def SerializeToString(self) -> bytes:
        """Encodes it, like a message of protobuf. The order of fields is free, so these are the last."""
        pieces = [
            self.fields.SerializeToString(),
            *_field(ChatOpen.MESSAGES_JSON_FIELD_NUMBER, self._messages_json),
            *_field(ChatOpen.TOOLS_JSON_FIELD_NUMBER, self._tools_json),
        ]
        return b"".join((_head(ChatRequest.OPEN_FIELD_NUMBER, sum(map(len, pieces))), *pieces))


def _field(number: int, value: bytes) -> Iterator[bytes]:
    """Yields the pieces of a field; none if it is empty, like protobuf."""
    if value:
        yield _head(number, len(value))
        yield value


def _head(number: int, size_bytes: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size_bytes)


def _varint(value: int) -> bytes:
    """Encodes a number by sevens of bits, the lowest first; all bytes but the last have the highest bit set."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
