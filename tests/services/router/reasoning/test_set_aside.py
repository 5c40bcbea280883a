import json
from typing import Any

import pytest

from services.router.reasoning.sealed_ids import ReasoningSeals
from services.router.reasoning.set_aside import CLIENTS_OWN, FORMAT, set_aside
from services.router.schema.messages import Messages, read_messages
from services.router.schema.thoughts import OF_MESSAGE, Carried, ReasoningDetail, ReasoningText

ACCOUNT = "acct_1"
THOUGHTS = (ReasoningText("It rains.", "reasoning_content"),)
USER = {"role": "user", "content": "Hi"}


@pytest.fixture
def seals() -> ReasoningSeals:
    return ReasoningSeals({1: b"k" * 32})


async def aside(seals: ReasoningSeals, *messages: Any) -> Messages:
    return await set_aside(await read_messages(json.dumps(messages).encode()), seals, ACCOUNT)


def called(*ids: str, **fields: Any) -> list[dict[str, Any]]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    results = [{"role": "tool", "tool_call_id": each, "content": "x"} for each in ids]
    return [{"role": "assistant", "content": None, "tool_calls": calls, **fields}, *results]


def sent(messages: Messages) -> Any:
    return json.loads(messages.json)


async def test_messages_that_carry_nothing_are_the_same(seals: ReasoningSeals) -> None:
    messages = await read_messages(json.dumps([USER, *called("call_1"), USER]).encode())
    assert await set_aside(messages, seals, ACCOUNT) is messages


async def test_ids_become_short_in_calls_and_results(seals: ReasoningSeals) -> None:
    sealed = seals.seal_id("call_a", "call_a", "f", THOUGHTS, ACCOUNT)
    messages = await aside(seals, USER, *called(sealed, "call_b"))
    assert sent(messages) == [USER, *called("call_a", "call_b")]
    assert messages.thoughts == {1: {0: Carried("f", "", list(THOUGHTS))}}
    # They are memory, too.
    assert messages.object_bytes > (await read_messages(json.dumps([USER, *called(sealed)]).encode())).object_bytes


async def test_vendors_own_ids_come_back_in_all_calls_of_a_message(seals: ReasoningSeals) -> None:
    sealed = seals.seal_id("call_get:0", "get:0", "f", THOUGHTS, ACCOUNT)
    assert sent(await aside(seals, *called(sealed, "call_get:1"))) == called("get:0", "get:1")


async def test_id_of_another_account_is_short_and_carries_nothing(seals: ReasoningSeals) -> None:
    sealed = seals.seal_id("call_a", "get:0", "f", THOUGHTS, "acct_2")
    messages = await aside(seals, *called(sealed))
    assert (sent(messages), messages.thoughts) == (called("call_a"), {})


async def test_thoughts_that_were_told_in_parts_are_those_of_one_message(seals: ReasoningSeals) -> None:
    texts = [ReasoningText(text, "reasoning_content") for text in ("One. ", "Two. ", "Three.")]
    one, two, three = (seals.seal_data("f", [text], ACCOUNT) for text in texts)
    other = seals.seal_data("g", THOUGHTS, ACCOUNT)
    details = [{"format": FORMAT, "data": f"{one}.{two}"}, {"format": FORMAT, "data": f"{three}.{other}.broken"}]
    messages = await aside(seals, *called("call_a", reasoning_details=details, reasoning_content="One."))
    assert messages.thoughts == {0: {OF_MESSAGE: Carried("f", "", texts)}}


async def test_plain_reasoning_of_the_client_is_set_aside(seals: ReasoningSeals) -> None:
    detail = {"type": "reasoning.encrypted", "data": "d"}
    messages = await aside(seals, *called("call_a", reasoning="So.", reasoning_details=[detail, 7]))
    assert sent(messages) == called("call_a")
    carried = messages.thoughts[0][OF_MESSAGE]
    assert carried.family == CLIENTS_OWN
    assert [type(thought) for thought in carried.thoughts] == [ReasoningDetail, ReasoningText]


async def test_sealed_details_are_used_where_the_id_has_nothing(seals: ReasoningSeals) -> None:
    other = (ReasoningText("Else.", "reasoning"),)
    details = [{"format": FORMAT, "data": seals.seal_data("f", other, ACCOUNT)}]
    beside = called("call_a", reasoning_content="shown", reasoning_details=details)
    assert (await aside(seals, *beside)).thoughts == {0: {OF_MESSAGE: Carried("f", "", list(other))}}
    sealed = seals.seal_id("call_a", "call_a", "f", THOUGHTS, ACCOUNT)
    both = called(sealed, reasoning_content="shown", reasoning_details=details)
    assert (await aside(seals, *both)).thoughts == {0: {0: Carried("f", "", list(THOUGHTS))}}


@pytest.mark.parametrize(("most_turns", "kept"), [(None, [1, 4, 6]), (3, [1, 4, 6]), (2, [1, 4, 6]), (1, [4, 6])])
async def test_thoughts_of_the_last_turns_alone_are_kept(
    seals: ReasoningSeals, most_turns: int | None, kept: list[int]
) -> None:
    """A turn has all calls between two messages of the user. Those without thoughts are not counted."""
    one, two, three = (seals.seal_id(f"call_{each}", f"call_{each}", "f", THOUGHTS, ACCOUNT) for each in "abc")
    asked = [USER, *called(one), USER, *called(two), *called(three), USER, *called("call_d"), USER]
    messages = await set_aside(await read_messages(json.dumps(asked).encode()), seals, ACCOUNT, most_turns)
    assert sorted(messages.thoughts) == kept
    # What is cleared leaves no id behind that would carry it.
    calls = ["call_a", "call_b", "call_c", "call_d"]
    assert [call["id"] for each in sent(messages) for call in each.get("tool_calls", ())] == calls


@pytest.mark.parametrize("strange", [7, "x", {"a": 1}, [], [{"format": FORMAT}], [{"format": FORMAT, "data": 7}]])
async def test_strange_details_are_no_mistake(strange: Any, seals: ReasoningSeals) -> None:
    messages = await aside(seals, *called("call_a", reasoning_details=strange, reasoning_content={"a": 1}))
    assert (sent(messages), messages.thoughts) == (called("call_a"), {})


async def test_message_in_front_moves_what_is_set_aside(seals: ReasoningSeals) -> None:
    messages = await aside(seals, USER, *called("call_a", reasoning="So."))
    assert list(messages.insert_guidance("Be brief.").thoughts) == [2]
    assert list(messages.append([]).thoughts) == [1]
