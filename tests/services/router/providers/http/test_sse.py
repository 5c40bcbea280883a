"""Events out of bytes, however the network cut them."""

import pytest

from services.router.providers.http.sse import LONGEST_EVENT_BYTES, EventReader, EventTooLong

STREAM = (
    ": a comment\n\n"
    'data: {"text": "größer als 日本"}\n\n'
    "data:without a space\n\n"
    "event: message\nid: 7\nretry: 100\ndata: with other fields\n\n"
    "data: first line\ndata: second line\n\n"
    "\n\n"
    "data: [DONE]\n\n"
)
EVENTS = [
    '{"text": "größer als 日本"}',
    "without a space",
    "with other fields",
    "first line\nsecond line",
    "[DONE]",
]
LINE_ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


def read_all(pieces: list[bytes]) -> list[str]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return [event.decode() for event in [*events, *reader.finish()]]


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_stream_cut_at_any_byte_gives_the_same_events(line_end: str) -> None:
    stream = STREAM.replace("\n", LINE_ENDS[line_end]).encode()
    for cut in range(len(stream) + 1):
        assert read_all([stream[:cut], stream[cut:]]) == EVENTS, cut


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_stream_in_single_bytes_gives_the_same_events(line_end: str) -> None:
    stream = STREAM.replace("\n", LINE_ENDS[line_end]).encode()
    assert read_all([bytes([byte]) for byte in stream]) == EVENTS


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_event_comes_out_with_its_blank_line_and_not_only_at_the_end(line_end: str) -> None:
    reader = EventReader()
    assert reader.feed("data: 1\n\ndata: 2\n".replace("\n", LINE_ENDS[line_end]).encode()) == [b"1"]


@pytest.mark.parametrize("stream", ["data: 1\n\ndata: 2\n\n", "data:1\r\n\r\ndata: 2"])
def test_mark_at_the_beginning_is_no_part_of_the_first_line(stream: str) -> None:
    marked = f"\ufeff{stream}".encode()
    for cut in range(len(marked) + 1):
        assert read_all([marked[:cut], marked[cut:]]) == ["1", "2"], cut


def test_mark_inside_of_an_event_is_a_part_of_it() -> None:
    assert read_all(["data: \ufeff1\n\ndata:\ufeff2\n\n".encode()]) == ["\ufeff1", "\ufeff2"]


def test_events_that_arrive_together_come_out_together() -> None:
    assert EventReader().feed(b"data: 1\n\ndata: 2\n\ndata: 3") == [b"1", b"2"]


@pytest.mark.parametrize(
    "stream",
    [
        "data: 1\n\ndata: 2\n\n",
        "data: \n\ndata: \n\n",
        "data: 1\n\n\n\ndata: 2\n\n",
        "data: 1\n\n\ndata: 2\n\n\n",
        "data: 1\ndata: 2\n\ndata: 3\n\n",
        "data: 1\n\n: a comment\n\ndata: 2\n\n",
        "data: 1\n\ndata:2\n\n",
        "data: data: \n\n",
    ],
)
def test_stream_in_one_piece_gives_the_same_events_as_in_single_bytes(stream: str) -> None:
    assert read_all([stream.encode()]) == read_all([bytes([byte]) for byte in stream.encode()])


def test_last_event_may_lack_its_blank_line() -> None:
    assert read_all([b"data: 1\n\ndata: 2"]) == ["1", "2"]


def test_line_without_end_is_not_collected_for_ever() -> None:
    with pytest.raises(EventTooLong):
        read_all([b"x" * 65536] * (LONGEST_EVENT_BYTES // 65536 + 1))


def test_event_without_end_is_not_collected_for_ever() -> None:
    with pytest.raises(EventTooLong):
        read_all([b"data: x\n"] * 10_000)


def test_event_of_many_long_lines_is_bounded_as_a_whole() -> None:
    line = b"data: " + b"x" * (LONGEST_EVENT_BYTES // 8) + b"\n"
    with pytest.raises(EventTooLong):
        read_all([line] * 9)
    assert read_all([line] * 7 + [b"\n"]) == ["\n".join([line[6:-1].decode()] * 7)]


def test_line_that_goes_on_after_others_of_its_event_is_bounded_with_them() -> None:
    half = b"x" * (LONGEST_EVENT_BYTES // 2)
    with pytest.raises(EventTooLong):
        read_all([b"data: " + half + b"\n", b"data: ", half])


def test_bound_is_for_each_event_and_not_for_the_stream() -> None:
    event = b"data: 1\n" * 1000 + b"\n" + b": comment\n" * 1000
    assert len(read_all([event] * 50)) == 50
