"""Dialects of tool calls, and the one form in which they leave.

The oracle is OpenAI's own rule for putting deltas together: what has the same index is joined, field by field.
"""

from typing import Any

import msgspec
import pytest

from legato_protos.router.v1.router_pb2 import ToolCallDelta
from services.router.answers.toolcalls import (
    DELTAS_THAT_WAIT_MOST,
    MOST_CHARACTERS_WITHOUT_NAME,
    ToolCalls,
)
from services.router.schema.tools import ToolCallFragment

PARIS, ROME = '{"city": "Paris"}', '{"city": "Rome"}'
TWO_CALLS = [("weather", PARIS), ("time", ROME)]


def sent_on(calls: ToolCalls, fragments: list[ToolCallFragment], *, is_cut: bool = False) -> list[ToolCallDelta]:
    """Fragment by fragment, and then the end."""
    deltas: list[ToolCallDelta] = []
    for fragment in fragments:
        delta = calls.add_fragment(fragment)
        deltas += calls.take_turns([] if delta is None else [delta])
    return deltas + calls.finish(is_cut=is_cut)


def put_together(fragments: list[ToolCallFragment], *, is_cut: bool = False) -> list[dict[str, Any]]:
    calls = ToolCalls()
    joined: dict[int, dict[str, Any]] = {}
    for delta in sent_on(calls, fragments, is_cut=is_cut):
        call = joined.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
        call["id"] += delta.id
        call["name"] += delta.name
        call["arguments"] += delta.arguments
    assert calls.all_named
    assert list(joined) == list(range(len(joined)))
    return list(joined.values())


def fragment(
    index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> ToolCallFragment:
    return ToolCallFragment(index, call_id, name, arguments)


DIALECTS = {
    "canonical": [
        fragment(0, "call_a", "weather", ""), fragment(0, arguments=PARIS[:5]), fragment(0, arguments=PARIS[5:]),
        fragment(1, "call_b", "time", ""), fragment(1, arguments=ROME),
    ],
    "interleaved": [
        fragment(0, "call_a", "weather"), fragment(1, "call_b", "time"), fragment(0, arguments=PARIS[:5]),
        fragment(1, arguments=ROME[:5]), fragment(0, arguments=PARIS[5:]), fragment(1, arguments=ROME[5:]),
    ],
    "whole calls": [fragment(0, "call_a", "weather", PARIS), fragment(1, "call_b", "time", ROME)],
    "no index": [fragment(None, "call_a", "weather", PARIS), fragment(None, "call_b", "time", ROME)],
    "no index, slivers without id": [
        fragment(None, "call_a", "weather"), *(fragment(arguments=character) for character in PARIS),
        fragment(None, "call_b", "time"), *(fragment(arguments=character) for character in ROME),
    ],
    "no index, interleaved by id": [
        fragment(None, "call_a", "weather"), fragment(None, "call_b", "time"), fragment(None, "call_a", None, PARIS),
        fragment(None, "call_b", None, ROME),
    ],
    "index always 0": [fragment(0, "call_a", "weather", PARIS), fragment(0, "call_b", "time", ROME)],
    "index always 0, slivers": [
        fragment(0, "call_a", "weather"), fragment(0, arguments=PARIS), fragment(0, "call_b", "time"),
        fragment(0, arguments=ROME),
    ],
    "no id": [fragment(0, None, "weather", PARIS), fragment(1, None, "time", ROME)],
    "neither id nor index": [fragment(name="weather", arguments=PARIS), fragment(name="time", arguments=ROME)],
    "neither id nor index, slivers": [
        fragment(name="weather"), fragment(arguments=PARIS), fragment(name="time"), fragment(arguments=ROME),
    ],
    "id on every fragment": [
        fragment(0, "call_a", "weather"), fragment(0, "call_a", None, PARIS), fragment(1, "call_b", "time"),
        fragment(1, "call_b", None, ROME),
    ],
    "id and name on every fragment": [
        fragment(0, "call_a", "weather", PARIS[:5]), fragment(0, "call_a", "weather", PARIS[5:]),
        fragment(1, "call_b", "time", ROME[:5]), fragment(1, "call_b", "time", ROME[5:]),
    ],
    "one id for all calls": [fragment(0, "0", "weather", PARIS), fragment(1, "0", "time", ROME)],
    "one id for all calls, no index": [fragment(None, "0", "weather", PARIS), fragment(None, "0", "time", ROME)],
    "id spelled null": [fragment(0, "null", "weather", PARIS), fragment(1, "null", "time", ROME)],
    "arguments before the name": [
        fragment(0, "call_a", None, PARIS[:5]), fragment(0, None, "weather", PARIS[5:]),
        fragment(1, "call_b", "time", ROME),
    ],
    "empty fragments between": [
        fragment(0), fragment(0, "call_a", "weather"), fragment(0, "", "", ""), fragment(0, arguments=PARIS),
        fragment(1), fragment(1, "call_b", "time", ROME),
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialect_comes_out_as_two_whole_calls(dialect: str) -> None:
    calls = put_together(DIALECTS[dialect])
    assert [(call["name"], call["arguments"]) for call in calls] == TWO_CALLS
    ids = [call["id"] for call in calls]
    assert len(set(ids)) == 2
    assert all(call_id.startswith("call_") and len(call_id) > len("call_") for call_id in ids)


@pytest.mark.parametrize("dialect", [name for name, said in DIALECTS.items() if said[0].call_id == "call_a"])
def test_ids_in_openais_form_are_kept(dialect: str) -> None:
    assert [call["id"] for call in put_together(DIALECTS[dialect])] == ["call_a", "call_b"]


def test_id_in_another_form_is_given_the_prefix() -> None:
    assert put_together([fragment(0, "toolu_1", "weather", PARIS)])[0]["id"] == "call_toolu_1"


def test_call_that_is_never_named_is_noticed() -> None:
    calls = ToolCalls()
    assert calls.add_fragment(fragment(0, "call_a", None, PARIS)) is None
    assert not calls.all_named


@pytest.mark.parametrize("dialect", DIALECTS)
def test_client_that_wants_one_call_gets_the_first_of_several(dialect: str) -> None:
    calls = ToolCalls(only_one=True)
    deltas = sent_on(calls, DIALECTS[dialect])
    assert {delta.index for delta in deltas} == {0}
    assert ("".join(delta.name for delta in deltas), "".join(delta.arguments for delta in deltas)) == TWO_CALLS[0]
    assert calls.all_named


NOW, DATE = fragment(0, "call_a", "now", ""), fragment(1, "call_b", "date", "")


@pytest.mark.parametrize("arguments", ["", None])
def test_call_without_arguments_is_given_an_empty_object(arguments: str | None) -> None:
    deltas = sent_on(ToolCalls(), [fragment(0, "call_a", "now", arguments)])
    assert deltas == [ToolCallDelta(index=0, id="call_a", name="now"), ToolCallDelta(index=0, arguments="{}")]


@pytest.mark.parametrize(
    "fragments",
    [
        [NOW, fragment(1, "call_b", "weather", ""), fragment(1, arguments=PARIS[:5]), fragment(1, arguments=PARIS[5:])],
        [fragment(0, "call_a", "weather", ""), DATE, fragment(0, arguments=PARIS)],
        [fragment(0, "call_a", "weather", PARIS), DATE],
        [NOW, DATE],
    ],
)
def test_call_is_whole_when_the_next_one_begins(fragments: list[ToolCallFragment]) -> None:
    """That is when OpenAI's clients read its arguments. At the end at the latest it is known whether any follow."""
    deltas = sent_on(ToolCalls(), fragments)
    assert [delta.index for delta in deltas] == sorted(delta.index for delta in deltas)
    for index in (0, 1):
        arguments = "".join(delta.arguments for delta in deltas if delta.index == index)
        assert msgspec.json.decode(arguments) in ({}, {"city": "Paris"})


def test_call_waits_for_no_longer_than_the_one_before_it_has_no_arguments() -> None:
    calls = ToolCalls()
    begun = [delta for said in (NOW, DATE) if (delta := calls.add_fragment(said)) is not None]
    assert [delta.name for delta in calls.take_turns(begun)] == ["now"]
    more = calls.add_fragment(fragment(0, arguments="{"))
    assert more is not None
    assert [(delta.index, delta.name) for delta in calls.take_turns([more])] == [(0, ""), (1, "date")]


def test_call_with_long_arguments_is_not_held_up_to_its_end() -> None:
    calls = ToolCalls()
    waiting = 0
    for said in (NOW, fragment(1, "call_b", "write", ""), *(fragment(1, arguments="1") for _ in range(1_000))):
        delta = calls.add_fragment(said)
        assert delta is not None
        waiting += 1 - len(calls.take_turns([delta]))
        assert waiting <= DELTAS_THAT_WAIT_MOST
    assert waiting == 0
    assert calls.finish(is_cut=False) == [ToolCallDelta(index=0, arguments="{}")]


def test_call_that_was_cut_off_before_its_arguments_does_not_look_whole() -> None:
    assert [call["arguments"] for call in put_together([NOW, DATE], is_cut=True)] == ["{}", ""]


def test_client_that_wants_one_call_is_told_of_no_other_that_has_no_arguments() -> None:
    deltas = sent_on(ToolCalls(only_one=True), [NOW, DATE])
    assert [(delta.index, delta.arguments) for delta in deltas] == [(0, ""), (0, "{}")]


def test_call_that_says_too_much_before_its_name_is_broken_and_not_collected() -> None:
    calls = ToolCalls()
    pieces = [fragment(0, arguments="x" * 1000)] * (MOST_CHARACTERS_WITHOUT_NAME // 1000 + 1)
    assert sent_on(calls, [*pieces, fragment(0, "call_a", "weather"), fragment(0, arguments=PARIS)]) == []
    assert not calls.all_named


def test_long_arguments_with_or_after_a_name_are_not_too_much() -> None:
    much = "x" * (MOST_CHARACTERS_WITHOUT_NAME + 1)
    for fragments in (
        [fragment(0, "call_a", "weather", much)],
        [fragment(0, "call_a", "weather"), fragment(0, arguments=much)],
        [fragment(0, arguments=PARIS), fragment(0, "call_a", "weather", much)],
    ):
        [call] = put_together(fragments)
        assert call["arguments"].endswith(much)


def test_thousands_of_calls_are_each_found_by_what_was_said_of_them() -> None:
    count = 3000
    by_index = [fragment(number, f"call_{number}", "weather") for number in range(count)]
    by_id = [fragment(None, f"call_{number}", "weather") for number in range(count)]
    for begun, more in (
        (by_index, [fragment(number, arguments=PARIS) for number in reversed(range(count))]),
        (by_id, [fragment(None, f"call_{number}", arguments=PARIS) for number in reversed(range(count))]),
    ):
        calls = put_together(begun + more)
        assert [call["id"] for call in calls] == [f"call_{number}" for number in range(count)]
        assert {call["arguments"] for call in calls} == {PARIS}
