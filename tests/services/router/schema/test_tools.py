"""Functions that may be called, as the client said."""

from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.schema.tools import CallableFunctions, Mode, Tools

TOOLS = (
    b'[{"type":"function","function":{"name":"f","parameters":{"type": "object"}}},'
    b'{"type":"function","function":{"name":"g","parameters":{}}},'
    b'{"type":"function","function":{"name":"h","parameters":null}}]'
)


def read_tools(tools_json: bytes, tool_choice_json: bytes) -> CallableFunctions | None:
    return Tools(tools_json, tool_choice_json).parsed


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("choice", "names", "mode", "forced"),
    [
        (None, "fgh", Mode.AUTO, None),
        ("auto", "fgh", Mode.AUTO, None),
        ("none", "fgh", Mode.NONE, None),
        ("required", "fgh", Mode.REQUIRED, None),
        ({"type": "function", "function": {"name": "g"}}, "fgh", Mode.REQUIRED, "g"),
        (allowed("auto", "g", "h"), "gh", Mode.AUTO, None),
        (allowed("required", "f"), "f", Mode.REQUIRED, None),
    ],
)
def test_choice_is_read_in_every_form(choice: Any, names: str, mode: Mode, forced: str | None) -> None:
    tools = read_tools(TOOLS, b"" if choice is None else msgspec.json.encode(choice))
    assert tools is not None
    assert ("".join(function.name for function in tools.functions), tools.mode, tools.forced) == (names, mode, forced)


def test_no_tools_are_none() -> None:
    assert read_tools(b"", b"") is None


def test_tools_are_parsed_once() -> None:
    tools = Tools(TOOLS, b'"required"')
    assert tools.parsed is tools.parsed


def test_allowed_tool_without_a_function_is_passed_over() -> None:
    choice = {"allowed_tools": {"tools": [{"type": "function"}, {"type": "function", "function": {"name": "h"}}]}}
    tools = read_tools(TOOLS, msgspec.json.encode(choice))
    assert tools is not None
    assert [function.name for function in tools.functions] == ["h"]


def test_only_a_schema_that_says_something_counts() -> None:
    tools = read_tools(TOOLS, b"")
    assert tools is not None
    assert [function.has_parameters for function in tools.functions] == [True, False, False]


@pytest.mark.parametrize("choice", [{"type": "function", "function": {"name": "x"}}, allowed("auto", "x")])
def test_choice_of_what_is_not_there_is_the_clients_mistake(choice: Any) -> None:
    with pytest.raises(LegatoError) as refusal:
        read_tools(TOOLS, msgspec.json.encode(choice))
    assert refusal.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        (b'[{"type":"function","function":{"name":"f","strict":"yes"}}]', b"", "tools"),
        (b'[{"type":"function"}]', b"", "tools"),
        (b"[" * 100_000, b"", "tools"),
        (TOOLS, b'"perhaps"', "tool_choice"),
        (TOOLS, b'{"allowed_tools":{"mode":"perhaps"}}', "tool_choice"),
        (TOOLS, b"7", "tool_choice"),
    ],
)
def test_what_cannot_be_read_is_the_clients_mistake(tools: bytes, choice: bytes, param: str) -> None:
    with pytest.raises(LegatoError) as refusal:
        read_tools(tools, choice)
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", param)


def test_servers_that_know_no_choice_among_tools_are_sent_those_alone() -> None:
    tools = Tools(TOOLS, msgspec.json.encode(allowed("required", "g", "f"))).without_others()
    assert [tool["function"]["name"] for tool in msgspec.json.decode(tools.json)] == ["f", "g"]
    # Byte for byte.
    assert b'"parameters":{"type": "object"}' in tools.json
    assert tools.tool_choice_json == b'"required"'
    forced = Tools(TOOLS, b'"required"')
    assert forced.without_others() is forced
