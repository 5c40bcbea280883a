"""Which tool calls of an answer a client could carry out."""

import pytest

from legato_protos.router.v1.router_pb2 import ToolCallDelta
from services.router.answers.tool_call_check import LONGEST_ARGUMENTS_CHARACTERS, ToolCallCheck
from services.router.schema.tools import Tools

TOOLS = Tools(b'[{"type": "function", "function": {"name": "look_up"}}]')


@pytest.mark.parametrize(
    ("name", "arguments", "valid"),
    [
        ("look_up", ['{"city": ', '"Laval"}'], 1),
        ("look_up", ["{}"], 1),
        ("look_up", ['{"city": '], 0),
        ("look_up", ['"Laval"'], 0),
        ("look_up", ["[]"], 0),
        ("look_up", [], 0),
        ("look_down", ["{}"], 0),
    ],
)
def test_call_is_valid_if_it_names_a_function_of_the_client_with_an_object(
    name: str, arguments: list[str], valid: int
) -> None:
    check = ToolCallCheck(TOOLS)
    check.add([ToolCallDelta(index=0, id="call_1", name=name)])
    check.add(ToolCallDelta(index=0, arguments=part) for part in arguments)
    assert check.count(is_cut=False) == (1, valid)


def test_last_call_of_an_answer_that_was_cut_is_not_judged() -> None:
    check = ToolCallCheck(TOOLS)
    check.add([ToolCallDelta(index=0, name="look_up", arguments="{}")])
    check.add([ToolCallDelta(index=1, name="look_up", arguments='{"ci')])
    assert check.count(is_cut=True) == (1, 1)
    assert check.count(is_cut=False) == (2, 1)


def test_endless_arguments_are_neither_kept_nor_judged() -> None:
    check = ToolCallCheck(TOOLS)
    check.add([ToolCallDelta(index=0, name="look_up", arguments=" " * LONGEST_ARGUMENTS_CHARACTERS)])
    check.add([ToolCallDelta(index=0, arguments="{}")])
    assert check.count(is_cut=False) == (0, 0)
