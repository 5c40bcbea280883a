"""Answers as clients send them back."""

import time
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from services.chassis.timing.yielding import Yielder
from services.router.prompts.character import load_character
from services.router.prompts.message_fields import with_known_fields
from services.router.prompts.prompt import compose_prompt
from tests.support.loop_holds import without_older_garbage

CHARACTER = load_character()
QUESTION = {"role": "user", "content": "How is the weather?"}
FUNCTION = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "assistant", "content": "It rains."}
PART = {"type": "text", "text": "It rains."}


async def told(message: dict[str, Any]) -> Any:
    prompt = await compose_prompt(msgspec.json.encode([QUESTION, message]), b"", CHARACTER)
    _, question, told_message = msgspec.json.decode(prompt.messages_json)
    assert question == QUESTION
    return told_message


@pytest.mark.parametrize(
    ("sent_back", "message"),
    [
        ({**ANSWER, "refusal": None, "annotations": None, "audio": None, "function_call": None, "name": None}, ANSWER),
        ({**ANSWER, "tool_calls": []}, ANSWER),
        ({**ANSWER, "annotations": []}, ANSWER),
        ({**ANSWER, "annotations": [{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]}, ANSWER),
        ({**ANSWER, "parsed": {"sky": "grey"}}, ANSWER),
        ({**ANSWER, "content": [{**PART, "role": "assistant", "refusal": None}]}, {**ANSWER, "content": [PART]}),
        ({**ANSWER, "content": [{**PART, "annotations": []}], "refusal": None}, {**ANSWER, "content": [PART]}),
        ({**CALLS, "refusal": None, "reasoning": None, "tool_call_id": None}, CALLS),
        ({**CALLS, "tool_calls": [{**CALL, "index": 0}]}, CALLS),
        ({**CALLS, "tool_calls": [{**CALL, "function": {**FUNCTION, "parsed_arguments": {"city": "Paris"}}}]}, CALLS),
        ({**CALLS, "tool_calls": [{**CALL, "function": {**FUNCTION, "description": None}}]}, CALLS),
        ({**QUESTION, "name": None, "tool_calls": None, "tool_call_id": None}, QUESTION),
        ({"role": "developer", "content": "Be brief.", "name": None}, {"role": "system", "content": "Be brief."}),
    ],
)
async def test_what_is_no_part_of_the_conversation_is_left_out(
    sent_back: dict[str, Any], message: dict[str, Any]
) -> None:
    assert await told(sent_back) == message


@pytest.mark.parametrize(
    "message",
    [
        CALLS,
        {**ANSWER, "refusal": "I would rather not."},
        {**ANSWER, "reasoning_content": "Clouds, so rain."},
        {**ANSWER, "content": [PART, {**PART, "cache_control": {"type": "ephemeral"}}]},
        {**CALLS, "tool_calls": [{**CALL, "extra_content": {"google": {"thought_signature": "c2ln"}}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}], "name": "w"},
    ],
)
async def test_all_else_stays(message: dict[str, Any]) -> None:
    assert await told(message) == message


async def test_message_with_nothing_to_leave_out_keeps_its_bytes() -> None:
    messages = (
        b'[{"role":"assistant", "content" : null,"tool_calls":[ {"id":"call_1","type":"function",'
        b'"function":{"arguments":"null \\u007b\\u007d","name":"get_weather"}}]},'
        b' {"role":"user","content":"null, [] and \\"annotations\\"", "name":"n"} ]'
    )
    prompt = await compose_prompt(messages, b"", CHARACTER)
    assert prompt.messages_json.endswith(messages[1:])


async def test_fields_that_nobody_knows_are_skipped_however_many_there_are() -> None:
    unknown = ",".join(f'"x{number}":{number}' for number in range(490_000))
    message = Raw(f'{{"role":"user","content":"Hi",{unknown}}}'.encode())
    with without_older_garbage():
        begun_s = time.thread_time()
        kept = await with_known_fields(message, Yielder(1 << 20))
        taken_s = time.thread_time() - begun_s
    # Some 20 ms here; an object of all of them took half a second.
    assert taken_s < 0.25
    assert msgspec.json.decode(kept) == {"role": "user", "content": "Hi"}


async def test_large_message_of_known_fields_alone_stays_as_it_is() -> None:
    message = Raw(msgspec.json.encode({"role": "user", "content": "a" * 100_000}))
    assert await with_known_fields(message, Yielder(1 << 20)) is message
