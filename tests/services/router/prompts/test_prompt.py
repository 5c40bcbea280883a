"""The conversation as it goes upstream."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError
from services.router.prompts.prompt import (
    BUNDLED,
    TOKENS_BEFORE_ANSWER,
    TOKENS_PER_MESSAGE,
    compose_prompt,
    load_character,
)
from services.router.prompts.tokens import SLICE_CHARACTERS, count

CHARACTER = load_character()


async def compose(messages_json: bytes, tools_json: bytes = b"") -> bytes:
    return (await compose_prompt(messages_json, tools_json, CHARACTER)).messages.json


async def test_character_comes_first_and_the_clients_bytes_follow_unchanged() -> None:
    messages = b' [ {"role":"system",  "content":"Be \\u0062rief."}, {"content":"1.0e0", "role":"user"} ]'
    composed = await compose(messages)
    assert composed == b"[" + msgspec.json.encode(CHARACTER.message) + b"," + messages.lstrip()[1:]
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
        ([{"role": "assistant", "content": "", "reasoning_content": text}], b""),
        ([{"role": "assistant", "content": "", "reasoning": text}], b""),
        ([{"role": "user", "content": "", "name": text}], b""),
        ([{"role": "tool", "content": "", "tool_call_id": text}], b""),
        ([{"role": "tool", "content": [{"type": "text", "text": ""}], "tool_call_id": text}], b""),
        ([{"role": "assistant", "tool_calls": [{"id": text, "function": {"name": "", "arguments": ""}}]}], b""),
        ([{"role": "user", "content": ""}], text.encode()),
    ):
        prompt = await compose_prompt(msgspec.json.encode(messages), tools, CHARACTER)
        assert prompt.tokens == bare + count(text)


@pytest.mark.parametrize("name", ["tool_choice_json", "parameters_json"])
@pytest.mark.parametrize(
    "given",
    [
        b'{"response_format":{"type":"json_schema","json_schema":{"schema":{"description":"%s"}}}}',
        b'{"stop":["%s"],"temperature":0.5}',
        b'{"seed":%s}',
    ],
)
async def test_what_the_answer_is_to_be_like_is_counted(name: str, given: bytes) -> None:
    words = 2_000
    bare = (await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER)).tokens
    long = given % (b"7 " * words).rstrip() if b'"%s"' in given else given % (b"789" * words)
    shown: dict[str, Any] = {name: long}
    prompt = await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER, **shown)
    assert words <= prompt.tokens - bare <= 2 * words + 100


async def test_settings_that_no_model_reads_are_not_counted() -> None:
    bare = (await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER)).tokens
    settings = b'{"temperature":0.5,"seed":7,"parallel_tool_calls":false}'
    prompt = await compose_prompt(b'[{"role":"user","content":""}]', b"", CHARACTER, parameters_json=settings)
    assert prompt.tokens == bare


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"%s","content":"hi"}',
        b'{"role":"user","content":[{"type":"text","text":"%s","text":"hi"}]}',
        (
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",'
            b'"function":{"name":"f","arguments":"%s","arguments":"{}"}}]}'
        ),
        b'{"role":"tool","tool_call_id":"%s","tool_call_id":"a","content":"hi"}',
        b'{"role":"user","content":"hi","x":"%s"}',
        b'{"role":"user","content":"hi","reasoning_details":[{"text":"%s"}]}',
        b'{"role":"user","content":[{"type":"text","text":"hi","x":{"y":"%s"}}]}',
        b'{"role":"assistant","content":"hi","function_call":{"name":"%s"}}',
        (
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","x":"%s",'
            b'"function":{"name":"f","arguments":"{}"}}]}'
        ),
        (
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",'
            b'"function":{"name":"f","arguments":"{}","x":"%s"}}]}'
        ),
    ],
)
async def test_what_is_not_counted_is_not_sent(message: bytes) -> None:
    hidden = b"canary " * 1_000
    prompt = await compose_prompt(b"[" + message % hidden + b"]", b"", CHARACTER)
    assert b"canary" not in prompt.messages.json
    assert prompt.tokens < count(CHARACTER.text) + 50
    # It is a message all the same.
    _, told = msgspec.json.decode(prompt.messages.json)
    assert told["role"] == msgspec.json.decode(message)["role"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "", "reasoning_content": {"a": ["canary"] * 1_000}},
        {"role": "assistant", "content": "", "reasoning": "canary" * 1_000},
        {"role": "assistant", "content": "", "prefix": ["canary"] * 1_000},
        {"role": "assistant", "content": "", "partial": "canary" * 1_000},
        {"role": "user", "content": [{"type": "text", "text": "", "cache_control": {"a": "canary" * 1_000}}]},
        {"role": "assistant", "tool_calls": [{"id": "a", "extra_content": {"a": "canary" * 1_000}}]},
    ],
)
async def test_what_is_sent_beside_the_text_is_counted_in_whatever_form(message: dict[str, Any]) -> None:
    prompt = await compose_prompt(msgspec.json.encode([message]), b"", CHARACTER)
    assert prompt.messages.json.count(b"canary") == 1_000
    assert prompt.tokens > 1_000


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
    _, *composed = msgspec.json.decode(prompt.messages.json)
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


def test_character_is_a_system_message(tmp_path: Path) -> None:
    (tmp_path / "character.md").write_text('Be "kind".\n')
    character = load_character("character.md", tmp_path)
    assert msgspec.json.decode(msgspec.json.encode(character.message)) == {"role": "system", "content": 'Be "kind".'}


def test_every_bundled_text_is_found_by_its_name_which_is_its_version() -> None:
    names = [path.stem for path in BUNDLED.iterdir()]
    assert names
    assert [load_character(name).version for name in names] == names


def test_text_for_the_small_model_is_the_shortest() -> None:
    assert len(load_character("legato-small-1").text) < len(load_character().text)


def test_file_that_is_missing_or_empty_is_a_mistake_in_the_settings(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text(" \n")
    for name in ("empty.md", "missing.md", "no-such-character"):
        with pytest.raises(SettingsError, match=name):
            load_character(name, tmp_path)
