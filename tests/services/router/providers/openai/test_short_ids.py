"""Ids as Mistral's models take them."""

import asyncio
from typing import Any

import msgspec
import pytest

from services.router.providers.openai.short_ids import short_id, shorten_call_ids
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed


def shortened(*messages: dict[str, Any]) -> Any:
    return msgspec.json.decode(asyncio.run(shorten_call_ids(parsed(msgspec.json.encode(messages)))).json)


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
    assert asyncio.run(shorten_call_ids(messages)) is messages


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
