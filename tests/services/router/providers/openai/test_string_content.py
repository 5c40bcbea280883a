"""Content for servers that take no lists of parts."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.router.providers.openai.string_content import write_as_strings
from tests.services.router.providers.past import USER, called, gave


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def written(*messages: dict[str, Any]) -> Any:
    return msgspec.json.decode(asyncio.run(write_as_strings(msgspec.json.encode(messages))))


def test_texts_of_a_message_become_one_whoever_speaks() -> None:
    system = {"role": "system", "content": parts("Be brief.")}
    user = {"role": "user", "name": "ann", "content": parts("How is ", 'the "weather"', " in été?")}
    call = called(("call_a", "f", "{}"))
    assert written(system, user, call, gave("call_a", parts("rain"))) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "ann", "content": 'How is the "weather" in été?'},
        call,
        gave("call_a", "rain"),
    ]


def test_single_text_keeps_its_bytes() -> None:
    messages = b'[{"role":"user","content":[{"type":"text","text":"\\u00e9t\xc3\xa9 \\/ 1"}]}]'
    assert asyncio.run(write_as_strings(messages)) == b'[{"role":"user","content":"\\u00e9t\xc3\xa9 \\/ 1"}]'


@pytest.mark.parametrize("messages", [b'[ {"role":"user", "content":"[1] Hi"} ]', b"[7]", b'[{"content":[7]}]'])
def test_all_else_stays_the_bytes_it_was(messages: bytes) -> None:
    assert asyncio.run(write_as_strings(messages)) is messages


def test_lists_in_other_fields_stay_lists() -> None:
    assert written({**USER, "tags": ["a"], "content": parts("Hi")}) == [{**USER, "tags": ["a"], "content": "Hi"}]
