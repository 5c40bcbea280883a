"""Tools of all kinds become functions with names of their own, by which a call finds back to its tool."""

import re
from typing import Any

import pytest

from edge.responses.tools import NamedTool
from edge.wire.chat_request import MOST_TOOLS
from tests.edge.responses.conversions import AGENTS, FORECAST, PATCH, Converted, convert, refusal

SEARCH = {"type": "web_search", "external_web_access": False}


def functions(converted: Converted) -> dict[str, Any]:
    return {tool["function"]["name"]: tool["function"] for tool in converted.chat.get("tools", ())}


def test_a_function_is_passed_on() -> None:
    bare = {"type": "function", "name": "now", "parameters": None, "strict": None}
    assert functions(convert(tools=[FORECAST, bare])) == {
        "forecast": {name: value for name, value in FORECAST.items() if name != "type"},
        "now": {"name": "now"},
    }


def test_a_custom_tool_is_a_function_of_one_text_with_its_grammar_in_words() -> None:
    patch = functions(convert(tools=[PATCH]))["apply_patch"]
    assert patch["parameters"]["required"] == ["input"]
    assert patch["description"].startswith("Changes files.\n\n")
    assert patch["description"].endswith("(lark):\nstart: line+")


def test_tools_of_a_namespace_have_both_names_and_what_is_said_of_it_once() -> None:
    converted = convert(tools=[AGENTS, FORECAST])
    found = functions(converted)
    assert list(found) == ["agents__spawn", "agents__ask", "forecast"]
    assert found["agents__spawn"]["description"] == "agents: Other agents."
    assert found["agents__ask"]["description"] == "Asks one."
    assert converted.tools.tool_of("agents__spawn") == NamedTool("spawn", "agents")
    assert converted.tools.tool_of("agents__ask") == NamedTool("ask", "agents", is_custom=True)
    assert converted.tools.tool_of("unknown") == NamedTool("unknown")


def test_names_that_models_do_not_take_or_that_two_tools_share_get_a_hash() -> None:
    long, dotted = "x" * 128, "files.read"
    group = {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": "b__c"}]}
    other = {"type": "namespace", "name": "a__b", "tools": [{"type": "function", "name": "c"}]}
    plain = [{"type": "function", "name": name} for name in (long, dotted)]
    converted = convert(
        tools=[group, other, *plain],
        input=[
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "1", "name": "c", "namespace": "a__b", "arguments": "{}"},
        ],
    )
    names = list(functions(converted))
    assert names[0] == "a__b__c"
    assert all(re.fullmatch(r"[\w-]{1,64}", name) for name in names)
    assert [converted.tools.tool_of(name) for name in names] == [
        NamedTool("b__c", "a"), NamedTool("c", "a__b"), NamedTool(long), NamedTool(dotted),
    ]  # fmt: skip
    assert converted.chat["messages"][1]["tool_calls"][0]["function"]["name"] == names[1]


def test_a_search_is_left_to_the_chat_where_the_account_has_it_and_else_named() -> None:
    for tools, may_search, ignored in (
        ([SEARCH], True, ()),
        ([SEARCH], False, ("web_search",)),
        ([{"type": "web_search_preview"}, FORECAST], True, ("web_search",)),
    ):
        converted = convert(tools=tools, tool_choice="auto", may_search=may_search)
        assert converted.ignored == ignored
        # A chat that names a choice does not search.
        assert converted.body.names_tool_choice == (FORECAST in tools)


def test_a_client_that_wants_no_search_now_gets_none() -> None:
    assert convert(tools=[SEARCH], tool_choice="none", may_search=True).body.names_tool_choice


def test_a_search_cannot_be_forced() -> None:
    for choice in ("required", {"type": "web_search"}):
        assert convert(tools=[SEARCH], tool_choice=choice, may_search=True).ignored == ("tool_choice",)
    converted = convert(tools=[SEARCH, FORECAST], tool_choice={"type": "web_search"})
    assert converted.ignored == ("tool_choice", "web_search")


@pytest.mark.parametrize(
    ("choice", "chosen", "offered"),
    [
        ("required", "required", 4),
        ({"type": "function", "name": "forecast"}, "forecast", 4),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch", 4),
        ({"type": "function", "name": "spawn", "namespace": "agents"}, "agents__spawn", 4),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "forecast"}, {"type": "web_search"}],
            },
            "required",
            1,
        ),
    ],
)
def test_a_choice_is_made_among_the_functions(choice: Any, chosen: str, offered: int) -> None:
    converted = convert(tools=[FORECAST, PATCH, AGENTS], tool_choice=choice)
    found = converted.chat["tool_choice"]
    assert (found if isinstance(found, str) else found["function"]["name"]) == chosen
    assert len(functions(converted)) == offered


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "file_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"name": "now"}]}, "tools[0]"),
        ({"tools": [{**FORECAST, "parameters": []}]}, "tools[0].parameters"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [AGENTS]}]}, "tools[0].tools[0].type"),
        ({"tools": [{"type": "namespace", "name": "a", "tools": [SEARCH]}]}, "tools[0].tools[0].type"),
        ({"tools": FORECAST}, "tools"),
        ({"tools": [FORECAST], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [FORECAST], "tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice"),
        ({"tools": [FORECAST], "tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice"),
        ({"tools": [FORECAST], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [FORECAST], "tool_choice": {"type": "x" * 70_000}}, "tool_choice"),
    ],
)
def test_tools_that_run_elsewhere_and_mistakes_are_refused_by_their_place(fields: dict[str, Any], param: str) -> None:
    assert refusal(**fields).param == param


def test_very_many_tools_are_refused() -> None:
    tools = [{"type": "function", "name": f"f{number}"} for number in range(MOST_TOOLS + 1)]
    assert refusal(tools=tools).param == "tools"
