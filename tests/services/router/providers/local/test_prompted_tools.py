"""Tool calling for a template that knows nothing of tools."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.providers.local.prompted_tools import Offer, read_answer, read_offer, render_as_plain_text
from services.router.schema.tools import ToolCallFragment, Tools
from tests.services.router.schema.reading import parsed

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TIME = {"type": "function", "function": {"name": "time"}}
TOOLS = msgspec.json.encode([WEATHER, TIME])


def offer(choice: Any = None) -> Offer:
    made = read_offer(Tools(TOOLS, b"" if choice is None else msgspec.json.encode(choice)))
    assert made is not None
    return made


def told(messages: Sequence[Any], guidance: str = "") -> Any:
    rendered = render_as_plain_text(parsed(msgspec.json.encode(messages)))
    return msgspec.json.decode((rendered.insert_guidance(guidance) if guidance else rendered).json)


def ways_to_answer(made: Offer, *, exact: bool = True) -> list[dict[str, Any]]:
    sent = msgspec.json.decode(msgspec.json.encode(made.response_format(exact=exact)))
    return [way["properties"] for way in sent["json_schema"]["schema"]["anyOf"]]


@pytest.mark.parametrize("choice", [None, "auto"])
def test_model_may_call_any_function_or_reply(choice: str | None) -> None:
    weather, time, reply = ways_to_answer(offer(choice))
    assert weather == {"name": {"const": "weather"}, "arguments": WEATHER["function"]["parameters"]}  # type: ignore[index]
    assert time == {"name": {"const": "time"}, "arguments": {"type": "object"}}
    assert list(reply) == ["reply"]


def test_model_must_call_when_a_call_is_required() -> None:
    assert [way["name"]["const"] for way in ways_to_answer(offer("required"))] == ["weather", "time"]


def test_model_must_call_the_function_that_is_named() -> None:
    [way] = ways_to_answer(offer({"type": "function", "function": {"name": "time"}}))
    assert way["name"] == {"const": "time"}


def test_model_may_be_limited_to_some_functions() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
    [way] = ways_to_answer(offer({"type": "allowed_tools", "allowed_tools": allowed}))
    assert way["name"] == {"const": "weather"}


def test_no_function_is_offered_when_none_may_be_called() -> None:
    assert read_offer(Tools(TOOLS, b'"none"')) is None


def test_choice_of_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(LegatoError) as refusal:
        offer({"type": "function", "function": {"name": "canary"}})
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "tool_choice")
    assert "canary" not in refusal.value.message


def test_arguments_are_left_open_where_the_schema_cannot_be_followed() -> None:
    assert ways_to_answer(offer("required"), exact=False)[0]["arguments"] == {"type": "object"}


def test_guidance_names_the_functions_and_the_form_of_a_call() -> None:
    guidance = offer().guidance
    assert "weather: The weather of a city." in guidance
    assert '"name"' in guidance
    assert '"reply"' in guidance
    assert '"reply"' not in offer("required").guidance


def test_answer_is_read_as_a_call_or_as_words() -> None:
    call = read_answer('{"name": "weather", "arguments": {"city": "Paris"}}')
    assert isinstance(call, ToolCallFragment)
    assert (call.name, msgspec.json.decode(call.arguments or "")) == ("weather", {"city": "Paris"})
    assert read_answer('{"reply": "Hello"}') == "Hello"
    assert read_answer('{"name": "weather", "argum') is None


def test_conversation_with_tools_is_told_in_plain_turns() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Paris"}, {"type": "text", "text": "?"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"},
    ]
    assert told(messages, "GUIDANCE") == [
        {"role": "system", "content": "Be kind."},
        {"role": "system", "content": "GUIDANCE"},
        {"role": "user", "content": "Paris?"},
        {"role": "assistant", "content": '{"name": "weather", "arguments": {"city": "Paris"}}'},
        {"role": "user", "content": "weather gave: 12 degrees"},
    ]


@pytest.mark.parametrize("calls", [None, [], [{}]])
def test_calls_of_who_cannot_call_are_passed_over(calls: Any) -> None:
    message = {"role": "user", "content": "Hi", "tool_calls": calls, "tool_call_id": None}
    assert told([message]) == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    "call", [{}, {"id": "call_1"}, {"id": "call_1", "function": {"name": "f"}}, {"function": {"name": "f"}}]
)
def test_call_that_is_not_whole_is_the_clients_mistake(call: Any) -> None:
    with pytest.raises(LegatoError) as refusal:
        told([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "messages")
