"""Parses Amazon's event streams (application/vnd.amazon.eventstream), however they are split.

A message has its length, that of its headers and a checksum of both, then headers, a payload and a checksum of all. The
payload of Bedrock has a model's event as it is, in base64. An exception becomes an event of the type `error`.
"""

import struct
import zlib
from typing import Final

import msgspec

from services.router.providers.base import UNREADABLE
from services.router.providers.http.sse import LONGEST_EVENT_BYTES, EventTooLong

AWS_EVENT_STREAM: Final = "application/vnd.amazon.eventstream"
# In place of a damaged message: no answer takes it for an event.
DAMAGED: Final = b"damaged"
_PRELUDE: Final = struct.Struct(">III")
_CHECKSUM: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
# Of a message without headers and payload.
_LEAST_BYTES: Final = _PRELUDE.size + _CHECKSUM.size
# The types of headers, with the length of their values. None: it is before the value.
_VALUE_BYTES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 6: None, 7: None, 8: 8, 9: 16}


class _Payload(msgspec.Struct, gc=False):
    event: bytes = msgspec.field(name="bytes", default=b"")


class _Exception(msgspec.Struct, gc=False):
    message: str = ""


_payloads = msgspec.json.Decoder(_Payload)
_exceptions = msgspec.json.Decoder(_Exception)


class AwsEventReader:
    """Reads events as `EventReader` does."""

    def __init__(self) -> None:
        # An incomplete message.
        self.begun = bytearray()
        # There are no lines to be joined.
        self.data: list[bytes] = []
        self._is_damaged = False

    @property
    def held_bytes(self) -> int:
        return len(self.begun)

    def feed(self, received: bytes) -> list[bytes]:
        """Returns the events that are complete, those before a damaged one among them. Raises EventTooLong."""
        begun, start = self.begun, 0
        events: list[bytes] = []
        if self._is_damaged:
            return []
        begun += received
        while len(begun) - start >= _PRELUDE.size:
            total_bytes, headers_bytes, checksum = _PRELUDE.unpack_from(begun, start)
            prelude = begun[start : start + _PRELUDE.size - _CHECKSUM.size]
            if zlib.crc32(prelude) != checksum or not _LEAST_BYTES + headers_bytes <= total_bytes:
                return self._end(events)
            if total_bytes > LONGEST_EVENT_BYTES:
                raise EventTooLong
            end = start + total_bytes
            if len(begun) < end:
                break
            event = _read(bytes(begun[start:end]), headers_bytes)
            if event is None:
                return self._end(events)
            if event:
                events.append(event)
            start = end
        del begun[:start]
        return events

    def _end(self, events: list[bytes]) -> list[bytes]:
        """Adds the mark of a damaged message as the last event: messages after it cannot be separated."""
        self._is_damaged = True
        self.begun.clear()
        return [*events, DAMAGED]

    def finish(self) -> list[bytes]:
        """Returns nothing: a message that is not complete has no event."""
        return []


def _read(message: bytes, headers_bytes: int) -> bytes | None:
    """Returns the event of a message; empty if it has none, and None if it is damaged."""
    end = len(message) - _CHECKSUM.size
    if zlib.crc32(message[:end]) != _CHECKSUM.unpack_from(message, end)[0]:
        return None
    payload_at = _PRELUDE.size + headers_bytes
    try:
        headers, payload = _read_headers(message[_PRELUDE.size : payload_at]), message[payload_at:end]
        kind = headers.get(":message-type")
        if kind == "event":
            return _payloads.decode(payload).event if headers.get(":event-type") == "chunk" else b""
        if kind == "exception":
            return _error(headers.get(":exception-type", ""), _exceptions.decode(payload).message)
    except (struct.error, IndexError, KeyError, *UNREADABLE):
        return None
    return _error(headers.get(":error-code", ""), headers.get(":error-message", ""))


def _read_headers(packed: bytes) -> dict[str, str]:
    """Returns the headers that are texts."""
    headers, at = {}, 0
    while at < len(packed):
        name_end = at + 1 + packed[at]
        name, kind = packed[at + 1 : name_end].decode(), packed[name_end]
        at = name_end + 1
        length = _VALUE_BYTES[kind]
        if length is None:
            (length,) = _LENGTH.unpack_from(packed, at)
            at += _LENGTH.size
            if kind == 7:
                headers[name] = packed[at : at + length].decode()
        at += length
    if at > len(packed):
        raise IndexError
    return headers


def _error(kind: str, message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
