"""The conversation as it goes upstream."""

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.router.character import load_character
from services.router.prompt import TOKENS_BEFORE_ANSWER, TOKENS_PER_MESSAGE, compose_prompt
from services.router.tokens import SLICE_CHARACTERS, count

CHARACTER = load_character()


async def compose(messages_json: bytes, tools_json: bytes = b"") -> bytes:
    return (await compose_prompt(messages_json, tools_json, CHARACTER)).messages_json


async def test_character_comes_first_and_the_clients_bytes_follow_unchanged() -> None:
    messages = b' [ {"role":"system",  "content":"Be \\u0062rief."}, {"content":"1.0e0", "role":"user", "x":1.0} ]'
    composed = await compose(messages)
    assert composed == b"[" + CHARACTER.message_json + b"," + messages.lstrip()[1:]
    roles = [message["role"] for message in msgspec.json.decode(composed)]
    assert roles == ["system", "system", "user"]


async def test_developer_is_called_system_and_all_else_stays() -> None:
    messages = b'[{"role":"user","content":"a"},{"content":"b","role":"developer","name":"n"}]'
    assert msgspec.json.decode(await compose(messages))[1:] == [
        {"role": "user", "content": "a"},
        {"role": "system", "content": "b", "name": "n"},
    ]


async def test_word_developer_in_a_message_changes_nothing() -> None:
    messages = b'[{"role":"user","content":"I am a \\"developer\\"."}]'
    assert (await compose(messages)).endswith(messages[1:])


async def test_everything_the_model_reads_is_counted() -> None:
    text = "some words that are counted, "
    bare = (await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER)).tokens
    assert bare > count(CHARACTER.text)
    for messages, tools in (
        ([{"role": "user", "content": text}], b""),
        ([{"role": "user", "content": [{"type": "text", "text": text}]}], b""),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "", "arguments": text}}]}], b""),
        ([{"role": "assistant", "content": None, "refusal": text}], b""),
        ([{"role": "user", "content": ""}], text.encode()),
    ):
        prompt = await compose_prompt(msgspec.json.encode(messages), tools, CHARACTER)
        assert prompt.tokens == bare + count(text)


async def test_long_texts_are_counted_wherever_they_stand() -> None:
    text = 'The "café" opens at seven. ' * 4_000
    bare = (await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER)).tokens
    for message in (
        {"role": "user", "content": text},
        {"role": "user", "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "", "arguments": text}}]},
    ):
        prompt = await compose_prompt(msgspec.json.encode([message]), b"", CHARACTER)
        assert abs(prompt.tokens - bare - count(text)) <= 2 * len(text) // SLICE_CHARACTERS


async def test_many_messages_are_each_counted_and_keep_their_bytes() -> None:
    messages = [{"role": role, "content": f"Hello {index}"} for index in range(5_000) for role in ("user", "developer")]
    prompt = await compose_prompt(msgspec.json.encode(messages), b"", CHARACTER)
    words = sum(count(message["content"]) for message in messages)
    assert prompt.tokens == count(CHARACTER.text) + words + TOKENS_PER_MESSAGE * 10_001 + TOKENS_BEFORE_ANSWER
    _, *composed = msgspec.json.decode(prompt.messages_json)
    assert composed == [{**message, "role": message["role"].replace("developer", "system")} for message in messages]


@pytest.mark.parametrize(
    "messages",
    [
        b"[]",
        b"{}",
        b"[",
        b"",
        b'[{"content":"no role"}]',
        b'[{"role":"user","content":7}]',
        b'[{"role":"user","content":"\xff"}]',
        b'[{"role":"assistant","content":"","refusal":7}]',
        b'[{"role":"user","content":"","deep":' + b"[" * 5_000 + b"]" * 5_000 + b"}]",
    ],
)
async def test_messages_that_cannot_be_read_are_refused_without_being_quoted(messages: bytes) -> None:
    with pytest.raises(LegatoError) as refusal:
        await compose(messages)
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "messages")
