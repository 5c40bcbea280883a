import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from edge.wire.completion_json import DONE, Chunks, Completion
from legato_protos.router.v1.router_pb2 import ChatResponse, Citation, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.usage import parts_of

USAGE = Usage(prompt_tokens=7, cached_tokens=2, completion_tokens=5, cache_write_tokens=4, reasoning_tokens=3)


def chunks() -> Chunks:
    return Chunks("chatcmpl-1", 1700000000, "forte")


def events(stream: bytes) -> list[dict[str, Any]]:
    lines = stream.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines if line != "data: [DONE]"]


def test_stream_has_the_documented_sequence() -> None:
    piece = ChatResponse(contents=["Hel", "lo"])
    stream = chunks().opening(piece) + chunks().deltas(piece) + chunks().closing("stop", USAGE)
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000, "model": "forte"}
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": dict.fromkeys(parts_of("prompt_tokens"), 0)
        | {"cached_tokens": 2, "cache_write_tokens": 4},
        "completion_tokens_details": dict.fromkeys(parts_of("completion_tokens"), 0) | {"reasoning_tokens": 3},
    }

    def choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    assert events(stream) == [
        choice({"role": "assistant", "content": ""}),
        choice({"content": "Hel"}),
        choice({"content": "lo"}),
        choice({}, "stop"),
        {**head, "choices": [], "usage": usage},
    ]
    assert stream.endswith(DONE)


def test_tool_calls_name_themselves_once() -> None:
    response = ChatResponse(
        tool_calls=[
            ToolCallDelta(index=0, id="call_1", name="weather", arguments=""),
            ToolCallDelta(index=0, arguments='{"city"'),
        ]
    )
    deltas = [event["choices"][0]["delta"]["tool_calls"] for event in events(chunks().deltas(response))]
    assert deltas == [
        [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"city"'}}],
    ]


def test_broken_stream_ends_with_an_error_and_no_done() -> None:
    event = chunks().failure(LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("It broke.")))
    assert events(event) == [
        {"error": {"message": "It broke.", "type": "api_error", "param": None, "code": "upstream_error"}}
    ]
    assert DONE not in event


def calls_of(completion: Any) -> list[tuple[str, str, str]]:
    calls = completion.choices[0].message.tool_calls or []
    return [(call.id, call.function.name, call.function.arguments) for call in calls]


_texts = st.lists(st.text(min_size=1), max_size=5)
_calls = st.lists(st.lists(st.text(), min_size=1, max_size=4), max_size=3)


@settings(deadline=None)
@given(contents=_texts, refusals=_texts, calls=_calls)
def test_streamed_and_whole_answers_are_the_same_message(
    contents: list[str], refusals: list[str], calls: list[list[str]]
) -> None:
    """The official client's own accumulator is the judge."""
    responses = [ChatResponse(contents=contents), ChatResponse(contents=refusals, refusal=True)]
    for index, pieces in enumerate(calls):
        deltas = [ToolCallDelta(index=index, arguments=piece) for piece in pieces]
        deltas[0].id, deltas[0].name = f"call_{index}", "f"
        responses.append(ChatResponse(tool_calls=deltas))
    finish_reason = "tool_calls" if calls else "stop"

    completion = Completion("chatcmpl-1", 1700000000, "forte")
    stream = chunks().opening(None)
    for response in responses:
        completion.add(response)
        stream += chunks().deltas(response)
    stream += chunks().closing(finish_reason, USAGE)
    whole = ChatCompletion.model_validate_json(completion.render(finish_reason, USAGE))

    state = ChatCompletionStreamState()
    for event in events(stream):
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
    streamed = state.get_final_completion()

    assert (streamed.choices[0].message.content or "") == (whole.choices[0].message.content or "")
    assert streamed.choices[0].message.refusal == whole.choices[0].message.refusal
    assert calls_of(streamed) == calls_of(whole)
    assert streamed.choices[0].finish_reason == whole.choices[0].finish_reason
    assert streamed.usage == whole.usage


def test_message_of_tool_calls_alone_has_null_content() -> None:
    completion = Completion("chatcmpl-1", 1700000000, "forte")
    completion.add(ChatResponse(tool_calls=[ToolCallDelta(index=0, id="call_1", name="f", arguments="{}")]))
    message = json.loads(completion.render("tool_calls", USAGE))["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_refusal_stands_where_clients_look_for_it_and_leaves_no_content() -> None:
    response = ChatResponse(contents=["I", " cannot."], refusal=True)
    deltas = [event["choices"][0]["delta"] for event in events(chunks().deltas(response))]
    assert deltas == [{"refusal": "I"}, {"refusal": " cannot."}]
    completion = Completion("chatcmpl-1", 1700000000, "forte")
    completion.add(response)
    message = json.loads(completion.render("stop", USAGE))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": None, "refusal": "I cannot."}


def test_answer_that_begins_with_a_call_has_no_content() -> None:
    [chunk] = events(chunks().opening(ChatResponse(tool_calls=[ToolCallDelta(index=0, id="call_1", name="f")])))
    assert chunk["choices"][0]["delta"] == {"role": "assistant", "content": None}


def test_citations_are_annotations_of_the_message_and_of_a_chunk_before_the_end() -> None:
    citations = [Citation(start_index=3, end_index=6, title="A page", url="https://a.test/")]
    annotation = {
        "type": "url_citation",
        "url_citation": {"start_index": 3, "end_index": 6, "title": "A page", "url": "https://a.test/"},
    }
    streamed = chunks()
    streamed.cite(citations)
    citing, end, _ = events(streamed.closing("stop", USAGE))
    assert citing["choices"] == [{"index": 0, "delta": {"annotations": [annotation]}, "finish_reason": None}]
    assert end["choices"][0]["finish_reason"] == "stop"
    completion = Completion("chatcmpl-1", 1700000000, "forte")
    completion.add(ChatResponse(contents=["So [1]."]))
    completion.cite(citations)
    message = ChatCompletion.model_validate_json(completion.render("stop", USAGE)).choices[0].message
    assert message.annotations is not None
    assert message.annotations[0].url_citation.url == "https://a.test/"
