"""Requests that tell providers to store nothing."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.router.providers import open_provider
from services.router.providers.base import ProviderCall, ProviderEnvironment, ProviderRoute, Timeouts
from services.router.providers.openai.provider import no_store_fields, short_id, shorten_call_ids, write_as_strings
from tests.services.router.providers.asking import CALL, both_ways, pieces_of
from tests.services.router.providers.past import USER, called, gave
from tests.services.router.schema.reading import parsed
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.gemini import GeminiUpstream
from tests.support.upstreams.openai import Upstream


async def told(upstream: Upstream, call: ProviderCall, **fields: Any) -> Any:
    """The body of such a call, by a provider as the routes file describes it."""
    route = ProviderRoute(
        "host", upstream.kind, upstream.base_url, api_key="secret", version=upstream.version, **fields
    )
    provider = open_provider(route, ProviderEnvironment(Timeouts(), Path("unused.sock")))
    try:
        await pieces_of(provider, call)
    finally:
        await provider.aclose()
    return upstream.requests[-1].json


@both_ways
@pytest.mark.parametrize("vendor", [Upstream, GeminiUpstream])
async def test_provider_is_told_to_store_nothing(vendor: type[Upstream | GeminiUpstream], call: ProviderCall) -> None:
    async with vendor() as upstream:
        assert (await told(upstream, call))["store"] is False
        # Nothing in the routes file undoes it.
        assert (await told(upstream, call, extra_json=b'{"store":true}'))["store"] is False


@both_ways
async def test_vendor_without_such_a_switch_is_sent_none(call: ProviderCall) -> None:
    async with AnthropicUpstream() as upstream:
        assert set(await told(upstream, call)) <= {"max_tokens", "messages", "model", "stream"}


async def test_server_that_takes_no_unknown_field_is_sent_none() -> None:
    async with Upstream() as upstream:
        assert "store" not in await told(upstream, CALL, no_store=False)


async def test_fields_of_the_routes_file_stay_beside_the_switch() -> None:
    async with Upstream() as upstream:
        body = await told(upstream, CALL, extra_json=b'{"provider":{"order":["a"]}}')
        assert (body["store"], body["provider"]) == (False, {"order": ["a"]})


@pytest.mark.parametrize(
    ("base_url", "fields"),
    [
        ("https://api.openai.com/v1", {"store": False}),
        ("https://eu.api.openai.com/v1", {"store": False}),
        ("https://somewhere.openai.azure.com/openai/v1", {"store": False}),
        ("http://127.0.0.1:8000/v1", {"store": False}),
        ("https://OpenRouter.ai/api/v1", {"provider": {"zdr": True, "data_collection": "deny"}}),
        ("https://api.mistral.ai/v1", {}),
        ("https://api.groq.com/openai/v1", {}),
    ],
)
def test_every_host_is_told_in_its_own_words(base_url: str, fields: dict[str, Any]) -> None:
    assert no_store_fields(base_url) == fields


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
