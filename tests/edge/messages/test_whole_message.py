"""A whole message, as Anthropic's own client reads it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.messages.events import MessageEvents
from edge.messages.message_json import MessageForm
from edge.messages.whole_message import WholeMessage
from legato_protos.router.v1.router_pb2 import ChatResponse, Citation, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from tests.support.message_events import read_events, read_message

USAGE = Usage(prompt_tokens=11, cached_tokens=4, completion_tokens=7)
ORDINARY = MessageForm()


def whole(*responses: ChatResponse, form: MessageForm = ORDINARY) -> WholeMessage:
    message = WholeMessage("msg_1", "mezzo", form)
    for response in responses:
        message.add(response)
    return message


def test_refusal_is_text_and_a_reason_to_stop() -> None:
    read = read_message(whole(ChatResponse(contents=["I cannot."], refusal=True)).render("stop", USAGE))
    assert ([block.to_dict()["text"] for block in read.content], read.stop_reason) == (["I cannot."], "refusal")


@pytest.mark.parametrize(
    ("met", "finish_reason", "told"),
    [
        ("END", "stop", ("stop_sequence", "END")),
        # One of the provider's own.
        ("<eot>", "stop", ("end_turn", None)),
        (None, "stop", ("end_turn", None)),
        ("END", "length", ("max_tokens", None)),
    ],
)
def test_stop_of_the_request_that_was_met_is_told(
    met: str | None, finish_reason: str, told: tuple[str, str | None]
) -> None:
    form = MessageForm(stop_sequences=("STOP", "END"))
    message, events = whole(ChatResponse(contents=["So"]), form=form), MessageEvents("msg_1", "mezzo", "7", form)
    message.stop_sequence = events.stop_sequence = met
    read = read_message(message.render(finish_reason, USAGE))
    delta = read_events(events.opening(None) + events.closing(finish_reason, USAGE))[-2].delta
    assert (read.stop_reason, read.stop_sequence) == (delta.stop_reason, delta.stop_sequence) == told


def test_call_that_was_cut_off_has_no_input() -> None:
    call = ToolCallDelta(index=0, id="call_1", name="f", arguments='{"city":"Pa')
    read = read_message(whole(ChatResponse(tool_calls=[call])).render("length", USAGE))
    assert read.stop_reason == "max_tokens"
    assert [block.input for block in read.content] == [{}]


def test_citations_are_those_of_the_text() -> None:
    message = whole(ChatResponse(contents=["So [1]."]))
    message.cite([Citation(start_index=3, end_index=6, title="A page", url="https://a.test/")])
    [text] = read_message(message.render("stop", USAGE)).content
    [citation] = text.citations
    assert citation.url == "https://a.test/"


def test_what_cut_an_answer_off_is_in_its_usage() -> None:
    read = read_message(whole(ChatResponse(contents=["So"])).render("length", USAGE, "spend_limit"))
    assert read.usage.to_dict()["x-legato-end"] == "spend_limit"


def test_usage_has_what_was_written_to_a_cache_and_what_was_thought() -> None:
    used = Usage(prompt_tokens=11, cached_tokens=4, completion_tokens=7, cache_write_tokens=5, reasoning_tokens=6)
    usage = read_message(whole(ChatResponse(contents=["So"])).render("stop", used)).usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (2, 4, 5)
    assert usage.output_tokens_details.thinking_tokens == 6


def test_thoughts_are_a_block_before_the_text_with_their_seals() -> None:
    thinking = ChatResponse(reasoning="Hm.", contents=["So."])
    message = whole(thinking)
    message.add_reasoning_data("1_a")
    message.add_reasoning_data("1_b")
    thought, text = read_message(message.render("stop", USAGE)).content
    assert (thought.type, thought.thinking, thought.signature) == ("thinking", "Hm.", "1_a.1_b")
    assert text.text == "So."
    omitted = whole(thinking, form=MessageForm(omits_thinking=True))
    thought, _ = read_message(omitted.render("stop", USAGE)).content
    assert (thought.thinking, thought.signature) == ("", "none")


def test_thoughts_without_a_text_are_a_redacted_block() -> None:
    message = whole(ChatResponse(contents=["So."]))
    message.add_reasoning_data("1_a")
    thought, _ = read_message(message.render("stop", USAGE)).content
    assert (thought.type, thought.data) == ("redacted_thinking", "1_a")


def test_empty_answer_has_no_blocks() -> None:
    assert read_message(whole().render("stop", USAGE)).content == []


_texts = st.lists(st.text(min_size=1), max_size=4)
_numbers = st.lists(st.integers(), max_size=3)


@settings(deadline=None)
@given(texts=_texts, calls=_numbers)
def test_streamed_and_whole_answers_are_the_same_message(texts: list[str], calls: list[int]) -> None:
    responses = [ChatResponse(contents=texts)] if texts else []
    for index, number in enumerate(calls):
        pieces = ['{"n":', f"{number}", "}"]
        deltas = [ToolCallDelta(index=index, arguments=piece) for piece in pieces]
        deltas[0].id, deltas[0].name = f"call_{index}", "f"
        responses.append(ChatResponse(tool_calls=deltas))
    finish_reason = "tool_calls" if calls else "stop"
    events = MessageEvents("msg_1", "mezzo", "7", ORDINARY)
    stream = events.opening(None) + b"".join(map(events.deltas, responses)) + events.closing(finish_reason, USAGE)

    message = read_message(whole(*responses).render(finish_reason, USAGE))

    *_, delta, _ = streamed = read_events(stream)
    assert delta.delta.stop_reason == message.stop_reason
    assert (delta.usage.input_tokens, delta.usage.output_tokens) == (
        message.usage.input_tokens,
        message.usage.output_tokens,
    )
    said = [event.delta for event in streamed if event.type == "content_block_delta"]
    assert "".join(piece.text for piece in said if piece.type == "text_delta") == "".join(texts)
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"n": n} for n in calls]
    assert len(message.content) == sum(event.type == "content_block_start" for event in streamed)
