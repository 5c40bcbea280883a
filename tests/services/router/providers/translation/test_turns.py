"""The client's messages as turns."""

from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.translation.turns import (
    Conversation,
    ModelTurn,
    ResultsTurn,
    SystemTurn,
    Text,
    UserTurn,
    plain_id,
    read_conversation,
)
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed


def read(*messages: dict[str, Any], **options: bool) -> Conversation:
    return read_conversation(parsed(msgspec.json.encode(messages)), **options)


def texts(*said: Text) -> list[str]:
    return [msgspec.json.decode(text.json) for text in said]


def test_system_messages_are_taken_together_wherever_they_stand() -> None:
    conversation = read(
        {"role": "system", "content": "One"},
        USER,
        {"role": "developer", "content": [{"type": "text", "text": "Two"}, {"type": "text", "text": ""}]},
        USER,
        {"role": "system", "content": ""},
    )
    assert texts(*conversation.system) == ["One", "Two"]
    [turn] = conversation.turns
    assert isinstance(turn, UserTurn)
    assert texts(*turn.texts) == ["Hi", "Hi"]


def test_system_messages_may_stay_in_the_turn_of_the_user_and_end_it() -> None:
    conversation = read(
        {"role": "system", "content": "One"},
        USER,
        {"role": "assistant", "content": "Hello"},
        {"role": "system", "content": "Two"},
        {"role": "system", "content": "Three"},
        USER,
        called(("a", "get_time", "{}"), ("b", "get_time", "{}")),
        gave("a", "noon"),
        {"role": "system", "content": "Four"},
        gave("b", "midnight"),
        {"role": "assistant", "content": "Noon"},
        # The user says nothing here.
        {"role": "system", "content": "Five"},
        keeps_system_inside=True,
    )
    assert texts(*conversation.system) == ["One", "Five"]
    kinds = [UserTurn, ModelTurn, UserTurn, SystemTurn, ModelTurn, ResultsTurn, SystemTurn, ModelTurn]
    assert [type(turn) for turn in conversation.turns] == kinds
    inside = [texts(*turn.texts) for turn in conversation.turns if isinstance(turn, SystemTurn)]
    assert inside == [["Two", "Three"], ["Four"]]


def test_speakers_take_turns_and_who_says_nothing_takes_none() -> None:
    conversation = read(
        USER,
        {"role": "assistant", "content": "One"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": "Two"}]},
        USER,
    )
    assert [type(turn) for turn in conversation.turns] == [UserTurn, ModelTurn, UserTurn]
    model = conversation.turns[1]
    assert isinstance(model, ModelTurn)
    assert texts(*model.texts) == ["One", "Two"]


@pytest.mark.parametrize("blank", [" ", "\n\n", "\t\r\n ", "\u00a0", "\u2003\u3000"])
def test_blank_text_says_nothing(blank: str) -> None:
    """Models put line breaks before a call, which clients send back."""
    conversation = read(
        {"role": "system", "content": blank},
        {"role": "user", "content": [{"type": "text", "text": blank}, {"type": "text", "text": " Hi"}]},
        called(("a", "get_time", "{}")) | {"content": blank},
        gave("a", blank),
        {"role": "assistant", "content": blank},
    )
    assert conversation.system == []
    user, model, results = conversation.turns
    assert isinstance(user, UserTurn)
    assert texts(*user.texts) == [" Hi"]
    assert isinstance(model, ModelTurn)
    assert (model.texts, len(model.calls)) == ([], 1)
    assert isinstance(results, ResultsTurn)
    assert msgspec.json.decode(results.results[0].text) == ""


def test_model_that_refused_has_said_so() -> None:
    conversation = read(USER, {"role": "assistant", "content": None, "refusal": "I cannot."}, USER)
    assert [type(turn) for turn in conversation.turns] == [UserTurn, ModelTurn, UserTurn]
    model = conversation.turns[1]
    assert isinstance(model, ModelTurn)
    assert texts(*model.texts) == ["I cannot."]


def test_null_is_the_same_as_absent() -> None:
    nothing = {"name": None, "tool_calls": None, "tool_call_id": None}
    conversation = read(
        {"role": "system", "content": "One", **nothing},
        {**USER, **nothing},
        {"role": "assistant", "content": "Yes.", **nothing},
        called(("a", "get_time", "")) | {"tool_call_id": None},
        gave("a", "noon") | {"tool_calls": None},
    )
    assert [type(turn) for turn in conversation.turns] == [UserTurn, ModelTurn, ResultsTurn]


def test_results_stand_in_the_order_of_the_calls_and_know_their_names() -> None:
    conversation = read(
        USER,
        called(("a", "get_time", ""), ("b", "get_weather", '{"city": 1.50}')),
        gave("b", [{"type": "text", "text": "cle"}, {"type": "text", "text": "ar"}]),
        gave("a", ""),
        called(("a", "get_time", " {} ")),
        gave("a", "noon"),
    )
    _, model, results, _, again = conversation.turns
    assert isinstance(model, ModelTurn)
    # As they were, digit for digit.
    assert [bytes(call.arguments) for call in model.calls] == [b"{}", b'{"city": 1.50}']
    assert isinstance(results, ResultsTurn)
    assert [(result.name, msgspec.json.decode(result.text)) for result in results.results] == [
        ("get_time", ""),
        ("get_weather", "clear"),
    ]
    assert isinstance(again, ResultsTurn)
    assert conversation.called_names == ["get_time", "get_weather"]


def test_id_that_providers_would_refuse_is_replaced_by_the_same_one_every_time() -> None:
    assert plain_id("call_1-a") == "call_1-a"
    assert plain_id("functions.f:0") == plain_id("functions.f:0") != plain_id("functions.f:1")
    assert plain_id(plain_id("functions.f:0")) == plain_id("functions.f:0")
    conversation = read(USER, called(("functions.f:0", "f", "{}")), gave("functions.f:0", "done"))
    results = conversation.turns[-1]
    assert isinstance(results, ResultsTurn)
    assert results.results[0].call_id == plain_id("functions.f:0")


@pytest.mark.parametrize(
    "messages",
    [
        [USER, called(("a", "get_time", "{}"))],
        [USER, called(("a", "get_time", "{}")), USER],
        [USER, called(("a", "get_time", "{}"), ("b", "get_time", "{}")), gave("a", "noon")],
        [USER, called(("a", "get_time", "{}")), gave("b", "noon")],
        [USER, called(("a", "get_time", "{}")), gave("a", "noon"), gave("a", "one")],
        [USER, called(("a", "get_time", "{}"), ("a", "get_time", "{}")), gave("a", "noon")],
        [USER, gave("a", "noon")],
        [USER, called(("a", "get_time", '{"cut')), gave("a", "noon")],
        [USER, called(("a", "get_time", "[]")), gave("a", "noon")],
        [{"role": "system", "content": "Be brief."}],
        [{"role": "user", "content": [7]}],
        [USER, gave("a", "noon") | {"tool_call_id": None}],
        [USER, gave("a", "noon") | {"tool_call_id": 7}],
    ],
)
def test_conversation_that_makes_no_sense_is_the_clients_mistake(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(LegatoError) as refusal:
        read(*messages)
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", "messages")
