"""The input of a custom tool is read from its arguments while they come, however they are cut."""

import json

import pytest

from edge.wire.custom_tools import CustomCalls, CustomInput, define_function
from services.rules.custom_tools import to_arguments

TEXT = '*** Begin Patch\n+ "é" \\ 🌧 \t\u2028\n*** End Patch'


@pytest.mark.parametrize(
    "arguments", [to_arguments(TEXT), json.dumps({"input": TEXT}), json.dumps({"input": TEXT}, indent=1)]
)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_every_character_is_taken_once_and_as_soon_as_it_is_complete(arguments: str, size: int) -> None:
    reading = CustomInput()
    taken = [reading.take(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert "".join(taken) == TEXT == reading.whole
    assert size > 7 or sum(map(bool, taken)) > len(TEXT) / size / 2


@pytest.mark.parametrize("arguments", ['{"patch":"x"}', '"x"', "not JSON", '{"input":7}', ""])
def test_arguments_in_another_form_are_the_input_themselves(arguments: str) -> None:
    reading = CustomInput()
    assert reading.take(arguments) == ""
    assert reading.whole == arguments


def test_what_has_come_of_a_cut_call_is_its_input() -> None:
    reading = CustomInput()
    assert reading.take('{"input":"abc\\u00') == "abc"
    assert reading.whole == "abc"


def test_a_tool_without_a_grammar_is_described_as_it_is() -> None:
    assert define_function("Runs code.", None, None)["description"] == "Runs code."
    assert "description" not in define_function("", None, None)


def pieces_of(calls: CustomCalls, index: int, name: str, *arguments: str) -> list[str | None]:
    return [calls.take(index, name if not number else "", each) for number, each in enumerate(arguments)]


def test_calls_of_custom_tools_are_told_from_those_of_functions() -> None:
    calls = CustomCalls({"apply_patch"})
    assert pieces_of(calls, 0, "get_weather", "", '{"input":"x"}') == [None, None]
    assert pieces_of(calls, 1, "apply_patch", "", '{"input":"ab', 'c"}') == ["", "ab", "c"]
    assert list(calls.take_rest()) == []


def test_rest_of_a_call_that_keeps_to_no_form_is_told_once() -> None:
    calls = CustomCalls({"apply_patch"})
    assert pieces_of(calls, 0, "apply_patch", "*** ", "Begin") == ["", ""]
    assert list(calls.take_rest()) == [(0, "*** Begin")]
    assert list(calls.take_rest()) == []
