"""Messages for servers that accept less than OpenAI does: contents that are strings, and short ids of calls."""

from typing import Any

import msgspec
import pytest

from services.router.providers.openai.message_dialects import short_id, shorten_call_ids, write_as_strings
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def written(*messages: dict[str, Any]) -> Any:
    return msgspec.json.decode(write_as_strings(parsed(msgspec.json.encode(messages))).json)


def test_texts_of_a_message_become_one_in_every_role() -> None:
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
    assert write_as_strings(parsed(messages)).json == b'[{"role":"user","content":"\\u00e9t\xc3\xa9 \\/ 1"}]'


def test_all_else_stays_the_bytes_it_was() -> None:
    messages = parsed(b'[ {"role":"user", "content":"[1] Hi"} ]')
    assert write_as_strings(messages) is messages


def test_no_texts_are_an_empty_one() -> None:
    assert written({"role": "user", "content": []}, {"role": "user", "content": [{"type": "text"}]}) == [
        {"role": "user", "content": ""},
        {"role": "user", "content": ""},
    ]


def test_lists_in_other_fields_stay_lists() -> None:
    assert written({**USER, "reasoning": ["a"], "content": parts("Hi")}) == [
        {**USER, "reasoning": ["a"], "content": "Hi"}
    ]


def shortened(*messages: dict[str, Any]) -> Any:
    return msgspec.json.decode(shorten_call_ids(parsed(msgspec.json.encode(messages))).json)


def test_calls_and_their_results_keep_belonging_together() -> None:
    _, call, first, second = shortened(
        USER,
        called(("call_a", "f", '{"a": 1.50}'), ("D681PevKs", "g", "{}")),
        gave("call_a", "x"),
        gave("D681PevKs", "y"),
    )
    ids = [said["id"] for said in call["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert all(len(call_id) == 9 and call_id.isalnum() and call_id.isascii() for call_id in ids)
    # Its own form is left as it is, and so is everything else.
    assert ids[1] == "D681PevKs"
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1.50}'}
    assert (first["content"], second["content"]) == ("x", "y")


def test_id_is_replaced_by_the_same_one_every_time() -> None:
    assert short_id("call_a") == short_id("call_a") != short_id("call_b")


def test_conversation_without_calls_stays_the_bytes_it_was() -> None:
    messages = parsed(b'[ {"role":"user", "content":"Hi"} ]')
    assert shorten_call_ids(messages) is messages


def test_calls_that_are_none_are_left_alone() -> None:
    message = {"role": "assistant", "content": "Hi"}
    assert shortened(message | {"tool_calls": None}) == [message]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hi", "tool_calls": [{}], "tool_call_id": "call_a"},
        {"role": "assistant", "content": "Hi", "tool_calls": [{"function": {"name": "f"}}, {}]},
        {"role": "tool", "content": "Hi"},
    ],
)
def test_ids_that_are_missing_or_mean_nothing_are_left_alone(message: dict[str, Any]) -> None:
    assert shortened(message) == [message]
