"""Tools, and which of them has to be called."""

import msgspec

from edge.wire.chat_request import MOST_TOOLS
from tests.edge.wire.chat_bodies import TOOL, decode, refusal_of


def test_empty_tools_are_the_plain_path() -> None:
    body = decode(tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert (body.tools_json, body.tool_choice_json, body.parameters_json) == (b"", b"", b"")


def test_calls_at_once_are_ignored_without_tools_and_named() -> None:
    no_tools: tuple[list[object] | None, ...] = ([], None)
    for tools in no_tools:
        for given in (True, False):
            assert decode(parallel_tool_calls=given, tools=tools).ignored == ("parallel_tool_calls",)
        assert decode(parallel_tool_calls=None, tools=tools).ignored == ()
    assert decode(parallel_tool_calls=True).ignored == ("parallel_tool_calls",)
    body = decode(tools=[TOOL], parallel_tool_calls=False)
    assert (body.ignored, body.parameters_json) == ((), b'{"parallel_tool_calls":false}')


def test_choice_of_tools_is_not_passed_on_without_tools_but_known() -> None:
    for choice in ("none", "auto"):
        body = decode(tool_choice=choice)
        assert (body.tool_choice_json, body.names_tool_choice) == (b"", True)
    assert not decode(tool_choice=None).names_tool_choice
    assert not decode().names_tool_choice


def test_choice_among_some_of_the_tools_is_passed_on_and_names_none_that_is_not_there() -> None:
    """A client narrows its tools so without changing what a prompt cache has."""
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    body = decode(tools=[TOOL], tool_choice=choice)
    assert msgspec.json.decode(body.tool_choice_json) == choice
    allowed["tools"] = [{"type": "function", "function": {"name": "other"}}]
    assert refusal_of(tools=[TOOL], tool_choice=choice).param == "tool_choice"
    allowed["tools"] = []
    assert refusal_of(tools=[TOOL], tool_choice=choice).param == "tool_choice.allowed_tools.tools"


def test_more_tools_than_the_most_are_refused() -> None:
    assert refusal_of(tools=[TOOL] * (MOST_TOOLS + 1)).message == "A request may have at most 10,000 tools."
