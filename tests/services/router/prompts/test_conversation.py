"""Turns of one conversation are recognised by how it begins."""

from typing import Any

import pytest

from services.router.prompts.conversation import (
    END_BYTES,
    digest_cache_key,
    digest_conversation,
    digest_instructions,
)
from services.router.schema.messages import read_messages
from tests.services.router.harness import as_json

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "How are you?"}
LONG = "word " * END_BYTES


async def digest(*messages: dict[str, Any], account_id: str = "acct_1") -> bytes:
    return digest_conversation(account_id, (await read_messages(as_json(messages))).parsed)


@pytest.mark.parametrize(
    "later",
    [
        ({"role": "assistant", "content": "Fine."}, {"role": "user", "content": "And now?"}),
        ({"role": "assistant", "content": "Fine."}, {"role": "system", "content": "Be long."}),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "42"},
        ),
    ],
    ids=["turn", "system", "tools"],
)
async def test_later_turns_are_of_the_same_conversation(later: tuple[dict[str, Any], ...]) -> None:
    assert await digest(SYSTEM, QUESTION, *later) == await digest(SYSTEM, QUESTION)


async def test_how_the_opener_is_written_makes_no_difference() -> None:
    marked = {"type": "text", "text": QUESTION["content"], "cache_control": {"type": "ephemeral"}}
    assert await digest(
        {"role": "developer", "content": "Be brief.", "name": "app"}, {"role": "user", "content": [marked]}
    ) == await digest(SYSTEM, QUESTION)


async def test_conversation_without_a_question_keeps_its_digest_until_there_is_one() -> None:
    greeting = {"role": "assistant", "content": "Hello!"}
    assert await digest(SYSTEM, greeting, greeting) == await digest(SYSTEM)
    assert await digest(SYSTEM, greeting, QUESTION) == await digest(SYSTEM, QUESTION)


async def test_other_conversations_differ() -> None:
    openers: list[tuple[dict[str, Any], ...]] = [
        (QUESTION,),
        (SYSTEM, QUESTION),
        (SYSTEM, SYSTEM, QUESTION),
        (SYSTEM, {"role": "user", "content": "How old are you?"}),
        (SYSTEM,),
        ({"role": "user", "content": "Be brief."}, QUESTION),
        # The beginning of a long text, its end and its length count.
        (SYSTEM, {"role": "user", "content": LONG}),
        (SYSTEM, {"role": "user", "content": f"a{LONG}"}),
        (SYSTEM, {"role": "user", "content": f"{LONG}a"}),
        (SYSTEM, {"role": "user", "content": LONG + LONG}),
        (SYSTEM, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (SYSTEM, {"role": "user", "content": [{"type": "text", "text": "ab"}]}),
    ]
    digests = [await digest(*opener) for opener in openers]
    digests.append(await digest(SYSTEM, QUESTION, account_id="acct_2"))
    assert len(set(digests)) == len(digests)


async def instructions(*messages: dict[str, Any], account_id: str = "acct_1", tools: bytes = b"[]") -> bytes:
    return digest_instructions(account_id, (await read_messages(as_json(messages))).parsed, tools)


async def test_first_turns_with_the_same_instructions_meet_whatever_is_asked() -> None:
    first = await instructions(SYSTEM, SYSTEM, QUESTION)
    other_question = {"role": "user", "content": LONG}
    for question in ((other_question,), (QUESTION, other_question), (QUESTION, SYSTEM)):
        assert await instructions(SYSTEM, SYSTEM, *question) == first
    others = [
        await instructions(SYSTEM, QUESTION),
        await instructions(SYSTEM, {"role": "system", "content": "Be long."}, QUESTION),
        await instructions(SYSTEM, SYSTEM, QUESTION, tools=b"[{}]"),
        await instructions(SYSTEM, SYSTEM, QUESTION, account_id="acct_2"),
        await digest(SYSTEM, SYSTEM, QUESTION),
    ]
    assert len({first, *others}) == len(others) + 1


async def test_later_turns_are_told_by_their_conversation_instead() -> None:
    assert await instructions(SYSTEM, QUESTION, {"role": "assistant", "content": "Fine."}, QUESTION) == b""


def test_key_of_a_client_is_of_its_account_alone() -> None:
    key = digest_cache_key("acct_1", b"digest")
    assert key == digest_cache_key("acct_1", b"digest")
    assert len({key, digest_cache_key("acct_2", b"digest"), digest_cache_key("acct_1", b"other")}) == 3
