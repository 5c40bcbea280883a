"""Content for servers that take no lists of parts."""

import asyncio
from typing import Any

import msgspec

from services.router.providers.openai.string_content import write_as_strings
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def written(*messages: dict[str, Any]) -> Any:
    return msgspec.json.decode(asyncio.run(write_as_strings(parsed(msgspec.json.encode(messages)))).json)


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
    assert (
        asyncio.run(write_as_strings(parsed(messages))).json == b'[{"role":"user","content":"\\u00e9t\xc3\xa9 \\/ 1"}]'
    )


def test_all_else_stays_the_bytes_it_was() -> None:
    messages = parsed(b'[ {"role":"user", "content":"[1] Hi"} ]')
    assert asyncio.run(write_as_strings(messages)) is messages


def test_no_texts_are_an_empty_one() -> None:
    assert written({"role": "user", "content": []}, {"role": "user", "content": [{"type": "text"}]}) == [
        {"role": "user", "content": ""},
        {"role": "user", "content": ""},
    ]


def test_lists_in_other_fields_stay_lists() -> None:
    assert written({**USER, "reasoning": ["a"], "content": parts("Hi")}) == [
        {**USER, "reasoning": ["a"], "content": "Hi"}
    ]
