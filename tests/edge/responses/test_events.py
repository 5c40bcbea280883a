"""Answers as typed events and as whole responses: both have the same items, by OpenAI's own types."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from edge.responses.events import GatheredResponse, ResponseEvents
from edge.responses.response_items import ReasoningForm
from edge.responses.response_json import ResponseObject
from edge.responses.tools import NamedTool, OfferedTools
from legato_protos.router.v1.router_pb2 import ChatResponse, Citation, ToolCallDelta
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.packed_pieces import pack_piece
from services.chassis.sentence import Sentence
from tests.edge.responses.conversions import convert
from tests.edge.responses.typed_events import check_response, kinds, read_events

USAGE = Usage(prompt_tokens=11, cached_tokens=4, completion_tokens=7)
REQUEST_ID = "019a8c2f5b3e7c10a1f24d6e8b90c3d5"
TOOLS = OfferedTools(
    by_function={
        "forecast": NamedTool("forecast"),
        "agents__spawn": NamedTool("spawn", "agents"),
        "apply_patch": NamedTool("apply_patch", is_custom=True),
    }
)
FORM = ReasoningForm(has_summary=True, has_encrypted=True)

HELLO = ChatResponse(contents=["Hel", "lo"])


def delta(index: int, arguments: str, name: str = "") -> ToolCallDelta:
    return ToolCallDelta(index=index, id=f"call_{index}" if name else "", name=name, arguments=arguments)


def calls(*deltas: ToolCallDelta) -> ChatResponse:
    return ChatResponse(tool_calls=deltas)


def response_object() -> ResponseObject:
    return ResponseObject(REQUEST_ID, 1763294400, "forte", convert(temperature=0.5).settings, lambda: 1763294401.5)


def stream(
    *pieces: ChatResponse, finish_reason: str = "stop", cut_by: str = "", citations: Sequence[Citation] = ()
) -> list[dict[str, Any]]:
    events = ResponseEvents(response_object(), TOOLS, FORM)
    told = events.opening(pieces[0] if pieces else None)
    told += b"".join(events.deltas(piece) for piece in pieces)
    if citations:
        events.cite(citations)
    return read_events(told + events.closing(finish_reason, USAGE, cut_by))


def whole(
    *pieces: ChatResponse, finish_reason: str = "stop", cut_by: str = "", citations: Sequence[Citation] = ()
) -> dict[str, Any]:
    answer = GatheredResponse(response_object(), TOOLS, FORM)
    for piece in pieces:
        answer.add(piece)
    if citations:
        answer.cite(citations)
    response: dict[str, Any] = json.loads(answer.render(finish_reason, USAGE, cut_by))
    check_response(response)
    return response


def test_a_text_comes_in_the_order_that_openai_documents() -> None:
    events = stream(HELLO)
    assert kinds(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events[4:6]] == ["Hel", "lo"]
    assert events[6]["text"] == "Hello"
    assert {event.get("item_id", events[2]["item"]["id"]) for event in events} == {events[2]["item"]["id"]}


def thinking(*steps: ChatResponse | str, form: ReasoningForm = FORM) -> tuple[list[dict[str, Any]], list[Any]]:
    """Returns the events of responses, and of seals that come before them; and the same items of a whole response."""
    events = ResponseEvents(response_object(), TOOLS, form)
    gathered = GatheredResponse(response_object(), TOOLS, form)
    told = events.opening(None)
    for step in steps:
        if isinstance(step, str):
            events.add_reasoning_data(step)
            gathered.add_reasoning_data(step)
        else:
            told += events.deltas(step)
            gathered.add(step)
    read = read_events(told + events.closing("stop", USAGE))
    response = json.loads(gathered.render("stop", USAGE))
    check_response(response)
    assert response["output"] == read[-1]["response"]["output"]
    return read, response["output"]


def test_thoughts_are_an_item_with_a_summary_in_the_order_that_openai_documents() -> None:
    events, [thought, message] = thinking(ChatResponse(reasoning="Hm"), ChatResponse(reasoning="…"), "1_a", HELLO)
    assert kinds(events)[2:10] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
    ]
    assert (events[3]["part"]["text"], events[5]["delta"], events[6]["text"]) == ("", "…", "Hm…")
    assert thought == events[8]["item"]
    assert (thought["type"], thought["encrypted_content"]) == ("reasoning", "1_a")
    assert thought["summary"] == [{"type": "summary_text", "text": "Hm…"}]
    assert events[2]["item"] == {"id": thought["id"], "type": "reasoning", "summary": []}
    assert message["content"][0]["text"] == "Hello"


def test_thoughts_are_told_as_far_as_they_are_asked_for() -> None:
    steps = (ChatResponse(reasoning="Hm."), "1_a", HELLO)
    _, [thought, _] = thinking(*steps, form=ReasoningForm(has_encrypted=True))
    assert (thought["summary"], thought["encrypted_content"]) == ([], "1_a")
    _, [thought, _] = thinking(*steps, form=ReasoningForm(has_summary=True))
    assert (thought["summary"][0]["text"], thought.keys()) == ("Hm.", {"id", "type", "summary"})
    _, [message] = thinking(*steps, form=ReasoningForm())
    assert message["type"] == "message"


def test_thoughts_between_and_behind_others_are_items_where_they_were() -> None:
    call = calls(delta(0, "{}", "forecast"))
    _, items = thinking(HELLO, ChatResponse(reasoning="Hm."), "1_a", call, "1_b")
    assert [item["type"] for item in items] == ["message", "reasoning", "function_call", "reasoning"]
    assert [item["encrypted_content"] for item in items if item["type"] == "reasoning"] == ["1_a", "1_b"]


def test_thoughts_come_before_what_comes_with_them() -> None:
    together = ChatResponse(reasoning="Hm.", contents=["So."], tool_calls=[delta(0, "{}", "forecast")])
    _, items = thinking("1_a", together)
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[0]["encrypted_content"] == "1_a"


def test_packed_texts_are_the_same_events() -> None:
    by_message, by_pack = [ResponseEvents(response_object(), TOOLS, FORM) for _ in range(2)]
    texts = ["a", 'é"\\\n', "🌧"]
    opening = [events.opening(None) for events in (by_message, by_pack)]
    packed = by_pack.packed(pack_piece(1, 2, texts))
    assert packed == by_message.deltas(ChatResponse(contents=texts))
    ends = [events.closing("stop", USAGE) for events in (by_message, by_pack)]
    assert ends[0] == ends[1]
    assert read_events(opening[1] + packed + ends[1])[-1]["response"]["output"][0]["content"][0]["text"] == "".join(
        texts
    )


def test_calls_are_items_of_their_tools_kind_with_their_own_names() -> None:
    patch = json.dumps({"input": "*** é"})
    events = stream(
        HELLO,
        calls(delta(0, '{"pl', "forecast"), delta(1, "{}", "agents__spawn")),
        calls(delta(0, 'ace":1}'), delta(2, patch[:12], "apply_patch"), delta(2, patch[12:])),
        finish_reason="tool_calls",
    )
    message, forecast, spawn, patched = events[-1]["response"]["output"]
    assert message["content"][0]["text"] == "Hello"
    assert {name: forecast[name] for name in ("type", "call_id", "name", "arguments", "status")} == {
        "type": "function_call",
        "call_id": "call_0",
        "name": "forecast",
        "arguments": '{"place":1}',
        "status": "completed",
    }
    assert (spawn["namespace"], spawn["name"], spawn["arguments"]) == ("agents", "spawn", "{}")
    assert (patched["type"], patched["name"], patched["input"]) == ("custom_tool_call", "apply_patch", "*** é")
    deltas: dict[str, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    assert deltas == {message["id"]: "Hello", forecast["id"]: '{"place":1}', spawn["id"]: "{}", patched["id"]: "*** é"}
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == [message, forecast, spawn, patched]
    # The message has ended before the first call begins.
    order = [(event["type"].split(".")[-1], event["output_index"]) for event in events if "item" in event]
    assert order == [
        ("added", 0), ("done", 0), ("added", 1), ("added", 2), ("added", 3), ("done", 1), ("done", 2), ("done", 3),
    ]  # fmt: skip


def test_text_after_a_call_is_another_message() -> None:
    output = stream(HELLO, calls(delta(0, "{}", "forecast")), HELLO)[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert len({item["id"] for item in output}) == 3


def test_a_refusal_is_a_part_of_its_own() -> None:
    refused = ChatResponse(contents=["I", " will not."], refusal=True)
    events = stream(HELLO, refused)
    assert [kind for kind in kinds(events) if "refusal" in kind] == ["refusal.delta", "refusal.delta", "refusal.done"]
    text, refusal = events[-1]["response"]["output"][0]["content"]
    assert (text["text"], refusal) == ("Hello", {"type": "refusal", "refusal": "I will not."})


@pytest.mark.parametrize(
    ("finish_reason", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
)
def test_an_answer_that_is_cut_is_incomplete_and_says_why(finish_reason: str, reason: str) -> None:
    events = stream(calls(delta(0, "{}", "forecast"), delta(1, '{"a', "forecast")), finish_reason=finish_reason)
    response = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": reason})
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert response["completed_at"] is None


def test_usage_is_what_is_charged_and_says_what_ended_it() -> None:
    usage = stream(HELLO, finish_reason="length", cut_by="credit")[-1]["response"]["usage"]
    assert usage == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
        "x-legato-end": "credit",
    }


def test_usage_has_what_was_written_to_a_cache_and_what_was_thought() -> None:
    used = Usage(prompt_tokens=11, completion_tokens=7, cache_write_tokens=5, reasoning_tokens=6)
    told = json.loads(GatheredResponse(response_object(), TOOLS, FORM).render("stop", used))["usage"]
    assert told["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 5}
    assert told["output_tokens_details"] == {"reasoning_tokens": 6}


def test_an_empty_answer_has_no_items() -> None:
    events = stream()
    assert kinds(events) == ["created", "in_progress", "completed"]
    assert events[-1]["response"]["output"] == []


def test_citations_are_annotations_of_the_text() -> None:
    cited = [Citation(start_index=0, end_index=5, title="T", url="https://a.example")]
    events = stream(HELLO, citations=cited)
    [added] = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    annotation = {"type": "url_citation", "start_index": 0, "end_index": 5, "title": "T", "url": "https://a.example"}
    assert added["annotation"] == annotation
    assert events[-1]["response"]["output"][0]["content"][0]["annotations"] == [annotation]


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (HELLO,),
        (HELLO, calls(delta(0, "{}", "forecast"))),
        (calls(delta(0, '{"input":"x"}', "apply_patch"), delta(1, "{}", "agents__spawn")),),
        (ChatResponse(contents=["No."], refusal=True),),
    ],
)
def test_a_whole_answer_is_what_the_stream_ends_with(pieces: tuple[ChatResponse, ...]) -> None:
    endings: tuple[dict[str, Any], ...] = ({}, {"finish_reason": "length", "cut_by": "spend_limit"})
    for ending in endings:
        assert whole(*pieces, **ending) == stream(*pieces, **ending)[-1]["response"]
    cited = [Citation(start_index=0, end_index=2, title="T", url="https://a.example")]
    assert whole(*pieces, citations=cited) == stream(*pieces, citations=cited)[-1]["response"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LegatoError(Reason.UPSTREAM_FAILED, Sentence.verbatim("The model's answer was interrupted.")), "server_error"),
        (LegatoError(Reason.KEY_INVALID, Sentence.verbatim("The API key is not valid.")), "invalid_api_key"),
        (LegatoError(Reason.SATURATED, Sentence.verbatim("Please retry."), retry_after_s=1), "rate_limit_exceeded"),
        (LegatoError(Reason.CREDITS_EXHAUSTED, Sentence.verbatim("No credit.")), "insufficient_quota"),
        (
            LegatoError(Reason.CONTEXT_EXCEEDED, Sentence.verbatim("Too long."), param="messages"),
            "context_length_exceeded",
        ),
    ],
)
def test_a_failure_is_an_error_that_clients_raise_and_a_response_that_failed(error: LegatoError, code: str) -> None:
    for has_begun in (True, False):
        events = ResponseEvents(response_object(), TOOLS, FORM)
        begun = events.opening(HELLO) + events.deltas(HELLO) if has_begun else b""
        *before, raised, failed = read_events(begun + events.failure(error))
        assert kinds(before)[:2] == ["created", "in_progress"]
        assert (raised["type"], raised["code"], raised["message"]) == ("error", code, error.message)
        assert raised["error"]["type"] == error.wire.type
        assert raised["param"] == ("input" if error.param else None)
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"] == {"code": code, "message": error.message}
        output = failed["response"]["output"]
        assert [item["status"] for item in output] == (["incomplete"] if has_begun else [])
