"""The sizes of padded events, and what a client reads of them."""

from collections.abc import Callable, Iterable

import msgspec
import pytest

from edge.http.padding import render_padded
from edge.http.replies import AnswerEvents
from edge.messages.events import MessageEvents
from edge.messages.message_json import MessageForm
from edge.responses.events import ResponseEvents
from edge.responses.response_items import ReasoningForm
from edge.responses.response_json import ResponseObject
from edge.responses.tools import OfferedTools
from edge.wire.completion_json import Chunks
from legato_protos.router.v1.router_pb2 import ChatResponse, ToolCallDelta

# Of all lengths that tokens have, and letters of several bytes.
WORDS = ["a", " is", "\n", " rain", '"', "雨", " tomorrow", " extraordinary", "é" * 14]


def events_of(rendered: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in rendered.split(b"\n\n")[:-1]]


def chunks() -> Chunks:
    return Chunks("chatcmpl-1", 1_800_000_000, "mezzo")


def response_events() -> ResponseEvents:
    response = ResponseObject("1", 1_800_000_000, "mezzo", {}, lambda: 1_800_000_000.0)
    return ResponseEvents(response, OfferedTools(), ReasoningForm(False, False))


def message_events() -> MessageEvents:
    return MessageEvents("msg_1", "mezzo", "1", MessageForm())


def pieces(words: Iterable[str]) -> list[ChatResponse]:
    return [ChatResponse(contents=[word]) for word in words]


@pytest.mark.parametrize(
    ("open_events", "has_field"), [(chunks, True), (response_events, True), (message_events, False)]
)
def test_events_of_all_words_have_one_size(open_events: Callable[[], AnswerEvents], has_field: bool) -> None:
    events, plain = open_events(), open_events()
    render, render_plainly = events.deltas, plain.deltas
    # What opens a part or a block is of no word, nor is the number of an event, here of two digits.
    render(ChatResponse(contents=["."] * 10))
    render_plainly(ChatResponse(contents=["."] * 10))
    sizes = {len(render_padded(piece, render, has_field=has_field)) for piece in pieces(WORDS)}
    assert len(sizes) == 1
    assert len({len(render_plainly(piece)) for piece in pieces(WORDS)}) > 5


def test_a_client_reads_the_same_beside_the_padding() -> None:
    call = ToolCallDelta(index=0, id="call_1", name="now", arguments="{}")
    response = ChatResponse(contents=["It", " is"], reasoning="So.", tool_calls=[call])
    rendered = render_padded(response, chunks().deltas, has_field=True)
    padded = [msgspec.json.decode(event[6:]) for event in events_of(rendered)]
    assert all(event.pop("obfuscation") for event in padded)
    assert padded == [msgspec.json.decode(event[6:]) for event in events_of(chunks().deltas(response))]


def test_a_dialect_without_a_field_has_the_padding_in_a_comment_of_the_same_event() -> None:
    rendered = render_padded(ChatResponse(contents=["It"]), message_events().deltas, has_field=False)
    *_, event = events_of(rendered)
    comment, kind, data = event.strip().split(b"\n")
    assert comment.startswith(b": ")
    assert kind == b"event: content_block_delta"
    assert msgspec.json.decode(data.removeprefix(b"data: "))["delta"] == {"type": "text_delta", "text": "It"}


def test_refusal_stays_one() -> None:
    [event] = events_of(render_padded(ChatResponse(contents=["No."], refusal=True), chunks().deltas, has_field=True))
    assert msgspec.json.decode(event[6:])["choices"][0]["delta"] == {"refusal": "No."}
