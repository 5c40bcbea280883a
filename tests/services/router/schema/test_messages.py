"""Messages as clients send them, parsed once."""

import time
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.schema.messages import (
    Message,
    Part,
    PastToolCall,
    decode_string,
    encode_string,
    read_messages,
)
from tests.services.router.schema.reading import parsed
from tests.support.loop_holds import forget_older_garbage

QUESTION = {"role": "user", "content": "How is the weather?"}
FUNCTION = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
CALLS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER = {"role": "assistant", "content": "It rains."}
PART = {"type": "text", "text": "It rains."}
MARK = {"type": "ephemeral"}


async def told(message: dict[str, Any]) -> Any:
    messages = await read_messages(msgspec.json.encode([QUESTION, message]))
    question, told_message = msgspec.json.decode(messages.json)
    assert question == QUESTION
    assert msgspec.json.decode(msgspec.json.encode(messages.parsed)) == [question, told_message]
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
        # A refusal among the parts is the text of one, and a mark of a message that of its last part.
        (
            {**ANSWER, "content": [{"type": "refusal", "refusal": "It rains."}]},
            {**ANSWER, "content": [PART]},
        ),
        ({**ANSWER, "cache_control": MARK}, {**ANSWER, "content": [{**PART, "cache_control": MARK}]}),
        (
            {**ANSWER, "content": [PART, PART], "cache_control": MARK},
            {**ANSWER, "content": [PART, {**PART, "cache_control": MARK}]},
        ),
        ({**CALLS, "cache_control": MARK}, CALLS),
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


async def test_messages_of_roles_and_texts_keep_their_bytes() -> None:
    json = (
        b' [{"role":"user","content":"null, [] and \\"annotations\\""},'
        b' {"content": "\\u007b\\u007d", "role": "assistant"}, {"role": "user", "content": ""} ]'
    )
    assert (await read_messages(json)).json is json


async def test_texts_stay_as_they_were_written_in_messages_of_other_fields() -> None:
    json = (
        b'[{"role":"assistant", "content" : null,"tool_calls":[ {"id":"call_1","type":"function",'
        b'"function":{"arguments":"null \\u007b\\u007d","name":"get_weather"}}]},'
        b' {"role": "user", "content": [{"type": "text", "text":"\\u0061"},{"type": "text", "text": "b"}], "name":""}]'
    )
    written = (await read_messages(json)).json
    assert msgspec.json.decode(written) == msgspec.json.decode(json)
    assert b'"null \\u007b\\u007d"' in written
    assert b'"\\u0061"' in written


async def test_of_two_fields_of_the_same_name_one_is_sent() -> None:
    written = (await read_messages(b'[{"role":"user","role":"system","content":"a"}]')).json
    assert written == b'[{"role":"system","content":"a"}]'


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"a","name":"n","":1}',
        b'{"role":"user","content":[{"type":"text","text":"a","":1}]}',
        b'{"role":"assistant","content":"a","tool_calls":[{"id":"b","type":"function","function":{"name":"f","":1}}]}',
        b'{"role":"assistant","content":"a","tool_calls":[{"id":"b","type":"function","":1,"function":{"name":"f"}}]}',
    ],
)
async def test_unknown_field_is_left_out_even_if_it_is_no_longer_than_spaces(message: bytes) -> None:
    assert b'"":' not in (await read_messages(b"[" + message + b"]")).json


async def test_null_is_left_out_of_calls_and_of_messages_with_many_fields() -> None:
    many = {**CALLS, "name": "n", "reasoning_content": "r", "refusal": "no"}
    assert await told({**many, "tool_call_id": None}) == many
    function = {"name": "f", "arguments": "{}"}
    call = {"type": "function", "function": function, "extra_content": {"a": 1}}
    assert await told({**CALLS, "tool_calls": [{"id": None, **call}]}) == {**CALLS, "tool_calls": [call]}


def test_parts_and_calls_are_parsed_with_their_message() -> None:
    parts, calls = parsed(msgspec.json.encode([{"role": "user", "content": [PART, {"type": "text"}]}, CALLS])).parsed
    assert isinstance(parts.content, list)
    assert all(isinstance(part, Part) for part in parts.content)
    assert list(map(decode_string, parts.texts)) == ["It rains."]
    assert not parts.calls
    [call] = calls.calls
    assert isinstance(call, PastToolCall)
    assert call.function is not None
    assert (call.id, call.function.name) == ("call_1", "get_weather")
    assert decode_string(call.function.arguments) == FUNCTION["arguments"]
    assert calls.texts == []


def test_messages_are_inserted_and_appended_in_a_copy() -> None:
    messages = parsed(b' [ {"role":"user", "content":"Hi"} ] ')
    system = Message(role="system", content=encode_string("Be brief."))
    longer = messages.insert(0, system).insert(2, system).append([system])
    assert messages.insert(0, system).json.endswith(b', {"role":"user", "content":"Hi"} ] ')
    assert messages.append([system]).parsed[:1] == messages.parsed
    assert [message.role for message in longer.parsed] == ["system", "user", "system", "system"]
    assert [message["role"] for message in msgspec.json.decode(longer.json)] == ["system", "user", "system", "system"]
    assert len(messages.parsed) == 1


@pytest.mark.parametrize(
    "message",
    [
        b"7",
        b"null",
        b'{"content":"Hi"}',
        b'{"role":null,"content":"Hi"}',
        b'{"role":"user","content":7}',
        b'{"role":"user","content":{}}',
        b'{"role":"user","content":[7]}',
        b'{"role":"user","content":[{"type":"text","text":7}]}',
        b'{"role":"user","content":"Hi","name":7}',
        b'{"role":"tool","content":"Hi","tool_call_id":7}',
        b'{"role":"assistant","content":"Hi","refusal":7}',
        b'{"role":"assistant","content":"Hi","tool_calls":{}}',
        b'{"role":"assistant","content":"Hi","tool_calls":"none"}',
        b'{"role":"assistant","content":"Hi","tool_calls":[null]}',
        b'{"role":"assistant","content":"Hi","tool_calls":[{"id":7}]}',
        b'{"role":"assistant","content":"Hi","tool_calls":[{"function":"f"}]}',
        b'{"role":"assistant","content":"Hi","tool_calls":[{"function":{"name":7}}]}',
        b'{"role":"assistant","content":"Hi","tool_calls":[{"function":{"arguments":{}}}]}',
    ],
)
async def test_what_cannot_be_read_is_the_clients_mistake(message: bytes) -> None:
    with pytest.raises(LegatoError) as refusal:
        await read_messages(b"[" + message + b"]")
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "messages")


@pytest.mark.parametrize(
    "messages",
    [
        [QUESTION] * 20_000,
        [{"role": "user", "content": [PART] * 20_000}],
        [{"role": "assistant", "content": None, "tool_calls": [CALL] * 20_000}],
    ],
    ids=["messages", "parts", "calls"],
)
async def test_long_prompts_are_read_in_slices(messages: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    rests = []

    async def rest(pause_s: float) -> None:
        rests.append(pause_s)

    monkeypatch.setattr("services.chassis.timing.yielder.asyncio.sleep", rest)
    await read_messages(msgspec.json.encode(messages))
    assert len(rests) >= 3


async def test_unknown_fields_are_skipped_however_many_there_are() -> None:
    unknown = ",".join(f'"x{number}":{number}' for number in range(490_000))
    message = f'[{{"role":"user","content":"Hi",{unknown}}}]'.encode()
    forget_older_garbage()
    begun_s = time.thread_time()
    messages = parsed(message)
    taken_s = time.thread_time() - begun_s
    # Some 20 ms here; an object of all of them took half a second.
    assert taken_s < 0.25
    assert msgspec.json.decode(messages.json) == [{"role": "user", "content": "Hi"}]


async def test_large_message_of_known_fields_alone_stays_as_it_is() -> None:
    message = msgspec.json.encode([{"role": "user", "content": "a" * 100_000}])
    assert (await read_messages(message)).json is message


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("What?", "What?\n\nA passage."),
        ([PART], [PART, {"type": "text", "text": "\n\nA passage."}]),
    ],
)
async def test_context_of_one_turn_is_at_the_end_of_the_last_question(said: Any, sent: Any) -> None:
    """Context has the form that the client has chosen, since servers differ in what they accept."""
    begun = [QUESTION, ANSWER, {"role": "user", "content": said}]
    for after in ([], [ANSWER]):
        messages = (await read_messages(msgspec.json.encode(begun + after))).add_context("A passage.")
        assert msgspec.json.decode(messages.json) == [QUESTION, ANSWER, {"role": "user", "content": sent}, *after]
        assert messages.lasting == len(begun)
        more = messages.append([Message(role="user", content=encode_string("And?"))])
        assert msgspec.json.decode(more.json)[2] == {"role": "user", "content": sent}
        assert more.lasting == len(begun)


async def test_context_without_a_question_is_guidance() -> None:
    system = {"role": "system", "content": "Be brief."}
    messages = (await read_messages(msgspec.json.encode([system, ANSWER]))).add_context("A passage.")
    assert msgspec.json.decode(messages.json) == [system, {"role": "system", "content": "A passage."}, ANSWER]
