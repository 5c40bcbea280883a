"""Messages of a chat as items of the Responses API."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from services.router.providers.abilities import UNKNOWN, Abilities
from services.router.providers.responses.past_items import write_items
from services.router.schema.thoughts import OF_MESSAGE, Carried, ResponsesReasoning
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed

USER_ITEM = {"role": "user", "content": "Hi"}


def item(name: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{name}", "summary": [], "encrypted_content": f"gAAA{name}"}


def thought(name: str, at: int = 0) -> ResponsesReasoning:
    return ResponsesReasoning(msgspec.json.encode(item(name)).decode(), at)


def without_id(name: str) -> dict[str, Any]:
    return {field: value for field, value in item(name).items() if field != "id"}


def items_of(
    messages: Sequence[Mapping[str, Any]],
    thoughts: Mapping[int, Mapping[int, Sequence[ResponsesReasoning]]] | None = None,
    abilities: Abilities = UNKNOWN,
    *,
    has_phases: bool = False,
) -> Any:
    read = parsed(msgspec.json.encode(messages))
    carried = {
        index: {place: Carried("openai", "", said) for place, said in by_call.items()}
        for index, by_call in (thoughts or {}).items()
    }
    return msgspec.json.decode(write_items(replace(read, thoughts=carried), abilities, has_phases=has_phases))


def test_messages_keep_their_order_and_their_parts() -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": "Bye"}]},
    ]
    assert items_of(messages) == [
        {"role": "system", "content": "Be brief."},
        USER_ITEM,
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"role": "user", "content": "Bye"},
    ]


def test_calls_and_their_results_are_items() -> None:
    messages = [USER, called(("call_a", "f", '{"x": 1}'), ("call_b", "g", ""), content="Look."), gave("call_a", "1")]
    messages.append(gave("call_b", [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}]))
    assert items_of(messages) == [
        USER_ITEM,
        {"role": "assistant", "content": "Look."},
        {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call", "call_id": "call_b", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "call_a", "output": "1"},
        {"type": "function_call_output", "call_id": "call_b", "output": "23"},
    ]


def test_id_of_a_call_is_never_longer_than_the_api_takes() -> None:
    """decolua/9router#393, V1ki/dsh-plugin-subscriptions#29."""
    call_id = "call_" + "x" * 80
    _, call, result = items_of([USER, called((call_id, "f", "{}")), gave(call_id, "1")])
    assert call["call_id"] == result["call_id"]
    assert len(call["call_id"]) <= 64


def test_refusal_is_what_the_model_said() -> None:
    messages = [USER, {"role": "assistant", "content": None, "refusal": "I cannot."}, USER]
    assert items_of(messages) == [USER_ITEM, {"role": "assistant", "content": "I cannot."}, USER_ITEM]


def test_text_for_this_turn_alone_is_in_its_place() -> None:
    read = parsed(msgspec.json.encode([USER])).add_context("Passage.")
    written = msgspec.json.decode(write_items(read, UNKNOWN, has_phases=False))
    assert written == [{"role": "user", "content": "Hi\n\nPassage."}]


@pytest.mark.parametrize("refused", [frozenset(), frozenset(("phase",))])
def test_comments_and_answers_are_told_apart(refused: frozenset[str]) -> None:
    """OpenAI's models from GPT-5.4 on would end early: vercel/ai#12860, pydantic/pydantic-ai#5229."""
    messages = [
        USER,
        called(("call_a", "f", "{}"), content="I look."),
        gave("call_a", "1"),
        {"role": "assistant", "content": "One."},
        USER,
    ]
    written = items_of(messages, abilities=Abilities(refused=refused), has_phases=True)
    said = [each.get("phase") for each in written if each.get("role") == "assistant"]
    assert said == ([None, None] if refused else ["commentary", "final_answer"])
    assert not any("phase" in each for each in written if each.get("role") != "assistant")


class TestWhatWasThought:
    MESSAGES = (USER, called(("call_a", "f", "{}"), ("call_b", "g", "{}"), content="Look."), gave("call_a", "1"))

    def test_it_stands_where_it_was_thought(self) -> None:
        by_call = {0: [thought("a"), thought("b", 2), thought("c", 5)], 1: [thought("d", 5)]}
        written = items_of(self.MESSAGES, {1: by_call})
        assert written[1:7] == [
            without_id("a"),
            {"role": "assistant", "content": "Lo"},
            without_id("b"),
            {"role": "assistant", "content": "ok."},
            without_id("c"),
            {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{}"},
        ]
        assert written[7] == without_id("d")

    def test_it_comes_from_the_message_too(self) -> None:
        written = items_of(self.MESSAGES, {1: {OF_MESSAGE: [thought("a")]}})
        assert written[1:3] == [without_id("a"), {"role": "assistant", "content": "Look."}]

    def test_it_is_left_out_where_nothing_follows(self) -> None:
        """continuedev/continue#8933."""
        messages = [USER, {"role": "assistant", "content": "Hello"}, USER]
        written = items_of(messages, {1: {OF_MESSAGE: [thought("a"), thought("b", 5)]}})
        assert written == [USER_ITEM, without_id("a"), {"role": "assistant", "content": "Hello"}, USER_ITEM]

    @pytest.mark.parametrize(
        ("past_reasoning", "expected"),
        [
            ("all", [without_id("a"), without_id("b")]),
            ("with_ids", [item("a"), item("b")]),
            ("latest", [without_id("b")]),
        ],
    )
    def test_it_comes_back_as_the_server_wants_it(
        self, past_reasoning: Literal["all", "with_ids", "latest"], expected: list[Any]
    ) -> None:
        messages = [USER, called(("a", "f", "{}")), gave("a", "1"), called(("b", "f", "{}")), gave("b", "2")]
        thoughts = {1: {0: [thought("a")]}, 3: {0: [thought("b")]}}
        written = items_of(messages, thoughts, Abilities(past_reasoning=past_reasoning))
        assert [each for each in written if each.get("type") == "reasoning"] == expected
