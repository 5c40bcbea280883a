"""The events of a streamed message, as Anthropic's own client reads them."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edge.messages.events import MessageEvents
from edge.messages.message_json import MessageForm
from legato_protos.router.v1.router_pb2 import ChatResponse, Citation, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.packed_pieces import pack_piece
from services.chassis.sentence import Sentence
from tests.support.message_events import kinds_of, read_events, split_events

USAGE = Usage(prompt_tokens=11, cached_tokens=4, completion_tokens=7)


def begun(form: MessageForm = MessageForm()) -> MessageEvents:  # noqa: B008
    return MessageEvents("msg_1", "mezzo", "7", form)


def calling(*deltas: ToolCallDelta) -> ChatResponse:
    return ChatResponse(tool_calls=deltas)


def stream_of(*responses: ChatResponse, finish_reason: str = "stop") -> bytes:
    events = begun()
    pieces = [events.deltas(response) for response in responses]
    return events.opening(responses[0]) + b"".join(pieces) + events.closing(finish_reason, USAGE)


def blocks_of(stream: bytes) -> list[tuple[str, str]]:
    """Returns the type of each block, and what its pieces come to, after their order was checked."""
    blocks: list[tuple[str, str]] = []
    is_open = False
    for event in read_events(stream):
        if event.type == "content_block_start":
            assert not is_open
            assert event.index == len(blocks)
            is_open = True
            blocks.append((event.content_block.type, ""))
        elif event.type == "content_block_delta":
            assert is_open
            assert event.index == len(blocks) - 1
            kind, text = blocks[-1]
            blocks[-1] = kind, text + _added(event.delta)
        elif event.type == "content_block_stop":
            assert is_open
            is_open = False
    assert not is_open
    return blocks


def _added(delta: Any) -> str:
    """Returns what an event adds to its block; a signature stands behind a bar."""
    if delta.type == "signature_delta":
        return f"|{delta.signature}"
    added: str = getattr(delta, delta.type.removesuffix("_delta").replace("input_json", "partial_json"))
    return added


def thinking(*steps: ChatResponse | str, form: MessageForm = MessageForm()) -> bytes:  # noqa: B008
    """Returns the stream of responses, and of seals that come before them."""
    events = begun(form)
    stream = events.opening(None)
    for step in steps:
        if isinstance(step, str):
            events.add_reasoning_data(step)
        else:
            stream += events.deltas(step)
    return stream + events.closing("stop", USAGE)


def test_thoughts_are_a_block_of_their_own_that_ends_with_its_seal() -> None:
    hm, so = ChatResponse(reasoning="Hm"), ChatResponse(contents=["So."])
    stream = thinking(hm, ChatResponse(reasoning="…"), "1_a", so, ChatResponse(contents=[" Yes."]))
    assert blocks_of(stream) == [("thinking", "Hm…|1_a"), ("text", "So. Yes.")]
    assert kinds_of(stream)[:7] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
    ]
    [begins] = [event.content_block for event in read_events(stream) if event.type == "content_block_start"][:1]
    assert (begins.thinking, begins.signature) == ("", "")


def test_thoughts_and_what_follows_them_may_come_at_once() -> None:
    call = ToolCallDelta(index=0, id="call_1", name="f", arguments="{}")
    whole = ChatResponse(reasoning="Hm.", contents=["So."], tool_calls=[call])
    assert blocks_of(thinking("1_a", whole)) == [("thinking", "Hm.|1_a"), ("text", "So."), ("tool_use", "{}")]


def test_thoughts_that_no_model_needs_back_have_a_signature_that_says_so() -> None:
    stream = thinking(ChatResponse(reasoning="Hm."), ChatResponse(contents=["So."]))
    assert blocks_of(stream) == [("thinking", "Hm.|none"), ("text", "So.")]


def test_thoughts_between_texts_are_blocks_between_theirs() -> None:
    stream = thinking(
        ChatResponse(contents=["One."]), ChatResponse(reasoning="Hm."), "1_a", ChatResponse(contents=["Two."])
    )
    assert blocks_of(stream) == [("text", "One."), ("thinking", "Hm.|1_a"), ("text", "Two.")]


def test_thoughts_without_a_text_are_a_redacted_block() -> None:
    stream = thinking("1_a", ChatResponse(contents=["So."]), "1_b")
    assert blocks_of(stream) == [("redacted_thinking", ""), ("text", "So."), ("redacted_thinking", "")]
    starts = [event.content_block for event in read_events(stream) if event.type == "content_block_start"]
    assert [getattr(block, "data", None) for block in starts] == ["1_a", None, "1_b"]


def test_thoughts_after_a_call_are_behind_it() -> None:
    first, second = (ToolCallDelta(index=at, id=f"call_{at}", name="f", arguments="{}") for at in range(2))
    stream = thinking(calling(first), ChatResponse(reasoning="Hm."), "1_a", calling(second))
    assert blocks_of(stream) == [("tool_use", "{}"), ("tool_use", "{}"), ("thinking", "Hm.|1_a")]


def test_thoughts_may_be_all_that_there_is() -> None:
    assert blocks_of(thinking(ChatResponse(reasoning="Hm."), "1_a")) == [("thinking", "Hm.|1_a")]


def test_thoughts_are_sealed_where_their_text_is_not_wanted() -> None:
    form = MessageForm(omits_thinking=True)
    stream = thinking(ChatResponse(reasoning="Hm."), "1_a", ChatResponse(contents=["So."]), form=form)
    assert blocks_of(stream) == [("thinking", "|1_a"), ("text", "So.")]


def test_stream_has_the_documented_sequence() -> None:
    stream = stream_of(ChatResponse(contents=["Hel", "lo"], prompt_tokens=11))
    assert kinds_of(stream) == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, *_, delta, _ = read_events(stream)
    assert (start.message.id, start.message.model, start.message.usage.input_tokens) == ("msg_1", "mezzo", 11)
    assert delta.delta.stop_reason == "end_turn"
    usage = delta.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (7, 4, 7)


def test_packed_pieces_are_the_same_events() -> None:
    response, texts = ChatResponse(contents=["a"]), ['"b"', "\n", "ü"]
    plain, packed = begun(), begun()
    plain.deltas(response)
    packed.deltas(response)
    assert packed.packed(pack_piece(1, 2, texts)) == plain.deltas(ChatResponse(contents=texts))


def test_packed_piece_that_is_the_first_begins_its_block() -> None:
    assert begun().packed(pack_piece(1, 2, ["a"])) == begun().deltas(ChatResponse(contents=["a"]))


def test_calls_are_blocks_one_after_the_other() -> None:
    stream = stream_of(
        ChatResponse(contents=["Let me see."]),
        calling(ToolCallDelta(index=0, id="call_1", name="f"), ToolCallDelta(index=0, arguments='{"a":')),
        calling(ToolCallDelta(index=0, arguments="1}")),
        calling(ToolCallDelta(index=1, id="call_2", name="g", arguments="{}")),
        finish_reason="tool_calls",
    )
    assert blocks_of(stream) == [("text", "Let me see."), ("tool_use", '{"a":1}'), ("tool_use", "{}")]
    starts = [event.content_block for event in read_events(stream) if event.type == "content_block_start"]
    assert [(block.id, block.name, block.input) for block in starts[1:]] == [("call_1", "f", {}), ("call_2", "g", {})]
    assert read_events(stream)[-2].delta.stop_reason == "tool_use"


def test_a_call_whose_pieces_come_between_those_of_an_earlier_one_waits_for_it() -> None:
    stream = stream_of(
        calling(ToolCallDelta(index=0, id="call_1", name="f", arguments='{"a":')),
        calling(ToolCallDelta(index=1, id="call_2", name="g", arguments='{"b":')),
        calling(ToolCallDelta(index=0, arguments="1}"), ToolCallDelta(index=1, arguments="2}")),
    )
    assert blocks_of(stream) == [("tool_use", '{"a":1}'), ("tool_use", '{"b":2}')]


def test_calls_that_were_cut_off_are_told_as_far_as_they_came() -> None:
    stream = stream_of(
        calling(ToolCallDelta(index=0, id="call_1", name="f", arguments='{"a":')),
        calling(ToolCallDelta(index=1, id="call_2", name="g", arguments='{"b":')),
        finish_reason="length",
    )
    assert blocks_of(stream) == [("tool_use", '{"a":'), ("tool_use", '{"b":')]
    assert read_events(stream)[-2].delta.stop_reason == "max_tokens"


def test_text_after_a_call_is_a_block_behind_it() -> None:
    stream = stream_of(
        calling(ToolCallDelta(index=0, id="call_1", name="f", arguments='{"a":')),
        ChatResponse(contents=["So."]),
        calling(ToolCallDelta(index=0, arguments="1}")),
    )
    assert blocks_of(stream) == [("tool_use", '{"a":1}'), ("text", "So.")]


def test_refusal_is_text_and_a_reason_to_stop() -> None:
    stream = stream_of(ChatResponse(contents=["I cannot."], refusal=True))
    assert blocks_of(stream) == [("text", "I cannot.")]
    assert read_events(stream)[-2].delta.stop_reason == "refusal"


def test_signs_of_life_are_pings_in_a_message_that_has_begun_once() -> None:
    events = begun()
    stream = events.sign_of_life() + events.sign_of_life()
    response = ChatResponse(contents=["Hello"], prompt_tokens=11)
    stream += events.opening(response) + events.deltas(response) + events.closing("stop", USAGE)
    assert kinds_of(stream)[:4] == ["message_start", "ping", "ping", "content_block_start"]
    assert kinds_of(stream).count("message_start") == 1


def test_empty_answer_is_a_message_without_blocks() -> None:
    events = begun()
    stream = events.opening(None) + events.closing("stop", USAGE)
    assert kinds_of(stream) == ["message_start", "message_delta", "message_stop"]
    assert blocks_of(stream) == []


def test_citations_belong_to_the_block_of_text() -> None:
    events, response = begun(), ChatResponse(contents=["So [1]."])
    events.cite([Citation(start_index=3, end_index=6, title="A page", url="https://a.test/")])
    stream = events.opening(response) + events.deltas(response) + events.closing("stop", USAGE)
    [cited] = [
        event.delta.citation
        for event in read_events(stream)
        if getattr(event, "delta", None)
        and event.type == "content_block_delta"
        and event.delta.type == "citations_delta"
    ]
    assert (cited.url, cited.title) == ("https://a.test/", "A page")


def test_a_client_that_manages_its_context_is_told_that_nothing_was_changed() -> None:
    events = begun(MessageForm(applied_edits=[]))
    delta = read_events(events.opening(None) + events.closing("stop", USAGE))[1]
    assert delta.context_management.applied_edits == []
    cleared = {"type": "clear_thinking_20251015", "cleared_thinking_turns": 2, "cleared_input_tokens": 30}
    *_, delta, _ = read_events(begun(MessageForm(applied_edits=[cleared])).closing("stop", USAGE))
    assert [edit.to_dict() for edit in delta.context_management.applied_edits] == [cleared]


def test_what_cut_an_answer_off_is_in_its_usage() -> None:
    events = begun()
    [_, (_, delta), _] = split_events(events.opening(None) + events.closing("length", USAGE, "credit"))
    assert delta["usage"]["x-legato-end"] == "credit"


def test_failure_is_an_event_of_anthropic_with_the_code_of_the_table() -> None:
    [(kind, data)] = split_events(begun().failure(LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("It broke."))))
    assert kind == "error"
    error = {"type": "api_error", "message": "It broke.", "param": None, "code": "upstream_error"}
    assert data == {"type": "error", "error": error, "request_id": "7"}


_pieces = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12)


@settings(deadline=None)
@given(pieces=_pieces, texts=st.lists(st.text(min_size=1), max_size=3))
def test_however_calls_are_interleaved_each_is_one_block(pieces: list[tuple[int, bool]], texts: list[str]) -> None:
    """Each call has the arguments `{"n": [1, 1, …]}`, a number in each piece."""
    responses = [ChatResponse(contents=texts)]
    numbers: dict[int, int] = {}
    for index, is_apart in pieces:
        opening = index not in numbers
        numbers[index] = numbers.get(index, 0) + 1
        delta = ToolCallDelta(index=index, arguments='{"n":[1' if opening else ",1")
        if opening:
            delta.id, delta.name = f"call_{index}", "f"
        if is_apart:
            responses.append(calling(delta))
        else:
            responses[-1].tool_calls.append(delta)
    responses += [calling(ToolCallDelta(index=index, arguments="]}")) for index in numbers]
    blocks = blocks_of(stream_of(*responses, finish_reason="tool_calls" if numbers else "stop"))
    found: list[Any] = sorted(len(json.loads(said)["n"]) for kind, said in blocks if kind == "tool_use")
    assert found == sorted(numbers.values())
    assert "".join(said for kind, said in blocks if kind == "text") == "".join(texts)
