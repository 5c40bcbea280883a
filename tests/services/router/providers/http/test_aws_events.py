"""Amazon's event streams, however they are split, and damaged ones."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.providers.http.aws_events import DAMAGED, AwsEventReader
from services.router.providers.http.sse import LONGEST_EVENT_BYTES, EventTooLong
from tests.support.upstreams.bedrock import chunk, exception, message

EVENTS = [b'{"type":"message_start"}', b'{"type":"ping"}', b'{"text":"' + b"x" * 500 + b'"}']
STREAM = b"".join(map(chunk, EVENTS)) + exception("throttlingException", "Too many tokens")
ERROR = b'{"type":"error","error":{"type":"throttlingException","message":"Too many tokens"}}'


@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=12))
def test_events_are_read_however_they_are_split(cuts: list[int]) -> None:
    reader, events, start = AwsEventReader(), [], 0
    for cut in (*sorted(cuts), len(STREAM)):
        events += reader.feed(STREAM[start:cut])
        start = cut
    assert events == [*EVENTS, ERROR]
    assert reader.held_bytes == 0
    assert reader.finish() == []


@pytest.mark.parametrize("place", [2, 9, 14, 40, -2, -30])
def test_damaged_message_is_refused(place: int) -> None:
    damaged = bytearray(chunk(EVENTS[0]))
    damaged[place] ^= 1
    reader = AwsEventReader()
    assert reader.feed(chunk(EVENTS[1]) + bytes(damaged) + chunk(EVENTS[1]) * 9) == [EVENTS[1], DAMAGED]
    assert reader.feed(chunk(EVENTS[1])) == []


def test_messages_of_amazons_library_are_read_alike() -> None:
    from botocore.eventstream import EventStreamBuffer

    buffer = EventStreamBuffer()
    buffer.add_data(STREAM)
    assert [event.headers[":message-type"] for event in buffer] == ["event"] * 3 + ["exception"]


def test_error_without_an_exception_is_told() -> None:
    headers = {":message-type": "error", ":error-code": "internal", ":error-message": "gone"}
    [event] = AwsEventReader().feed(message(headers, b""))
    assert event == b'{"type":"error","error":{"type":"internal","message":"gone"}}'


def test_events_of_other_kinds_are_left_out() -> None:
    assert AwsEventReader().feed(message({":message-type": "event", ":event-type": "metadata"}, b'{"x":1}')) == []


@pytest.mark.parametrize("payload", [b"<html>", b'{"bytes": 7}', b'{"bytes": "no base64!"}'])
def test_payload_that_is_none_is_refused(payload: bytes) -> None:
    assert AwsEventReader().feed(message({":message-type": "event", ":event-type": "chunk"}, payload)) == [DAMAGED]


def test_headers_of_all_types_are_passed_over() -> None:
    others = b"".join(
        struct.pack(">B", 1) + b"h" + bytes([kind]) + value
        for kind, value in {
            0: b"", 1: b"", 2: b"1", 3: b"12", 4: b"1234", 5: b"12345678", 6: b"\0\3abc", 8: b"12345678", 9: b"1" * 16
        }.items()
    )  # fmt: skip
    plain = chunk(EVENTS[1])
    headers_bytes = struct.unpack_from(">I", plain, 4)[0]
    content = others + plain[12 : len(plain) - 4]
    prelude = struct.pack(">II", 16 + len(content), headers_bytes + len(others))
    begun = prelude + struct.pack(">I", zlib.crc32(prelude)) + content
    assert AwsEventReader().feed(begun + struct.pack(">I", zlib.crc32(begun))) == [EVENTS[1]]


@pytest.mark.parametrize("headers", [b"\x05abc", b"\x01h\x63", b"\x01h\x07\xff\xff"])
def test_headers_that_are_none_are_refused(headers: bytes) -> None:
    prelude = struct.pack(">II", 16 + len(headers), len(headers))
    begun = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers
    assert AwsEventReader().feed(begun + struct.pack(">I", zlib.crc32(begun))) == [DAMAGED]


def test_message_that_is_too_long_is_not_waited_for() -> None:
    prelude = struct.pack(">II", LONGEST_EVENT_BYTES + 1, 0)
    with pytest.raises(EventTooLong):
        AwsEventReader().feed(prelude + struct.pack(">I", zlib.crc32(prelude)))
