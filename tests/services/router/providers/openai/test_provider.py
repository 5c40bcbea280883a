"""Requests that tell providers to store nothing, and which cache to look in."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.router.providers import open_provider
from services.router.providers.base import ProviderCall, ProviderRoute, Timeouts
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import CALL, both_ways, changed, failure_of, opened, pieces_of
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.gemini import GeminiUpstream
from tests.support.upstreams.openai import Upstream


async def told(upstream: Upstream, call: ProviderCall, **fields: Any) -> Any:
    """The body of such a call, by a provider as the routes file describes it."""
    route = ProviderRoute(
        "host", upstream.kind, upstream.base_url, api_key="secret", version=upstream.version, **fields
    )
    provider = open_provider(route, Timeouts(), Path("unused.sock"))
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


async def test_provider_that_takes_a_cache_key_is_sent_one_that_says_nothing_else() -> None:
    call = replace(CALL, cache_identity=b"acct_1 and how the conversation began")
    async with Upstream() as upstream:
        key = (await told(upstream, call, prompt_cache_key=True))["prompt_cache_key"]
        assert len(key) == 32
        assert key == (await told(upstream, call, prompt_cache_key=True))["prompt_cache_key"]
        other = replace(CALL, cache_identity=b"acct_2 and how the conversation began")
        assert (await told(upstream, other, prompt_cache_key=True))["prompt_cache_key"] != key
        # Without the secret that it is made with, no guess of the content can be tested.
        provider = open_provider(
            ProviderRoute("host", "openai", upstream.base_url, api_key="another", prompt_cache_key=True),
            Timeouts(),
            Path("unused.sock"),
        )
        await pieces_of(provider, call)
        await provider.aclose()
        assert upstream.requests[-1].json["prompt_cache_key"] not in (key, None)


async def test_server_that_knows_no_cache_key_and_chat_that_has_none_are_sent_none() -> None:
    identified = replace(CALL, cache_identity=b"acct_1")
    async with Upstream() as upstream:
        assert "prompt_cache_key" not in await told(upstream, identified)
        assert "prompt_cache_key" not in await told(upstream, CALL, prompt_cache_key=True)
        own = await told(upstream, identified, prompt_cache_key=True, extra_json=b'{"prompt_cache_key":"ours"}')
        assert own["prompt_cache_key"] == "ours"


async def test_limit_of_the_output_is_sent_where_it_is_told() -> None:
    async with Upstream() as upstream, GeminiUpstream() as gemini:
        assert (await told(upstream, CALL))["max_tokens"] == 50
        assert (await told(gemini, CALL))["generationConfig"]["maxOutputTokens"] == 50
        untold = replace(CALL, is_limit_told=False)
        assert not {"max_tokens", "max_completion_tokens"} & set(await told(upstream, untold))
        assert "maxOutputTokens" not in (await told(gemini, untold))["generationConfig"]
    # The API refuses a request without it.
    async with AnthropicUpstream() as anthropic:
        assert (await told(anthropic, untold))["max_tokens"] == 50


async def test_empty_stops_are_left_out_and_named() -> None:
    async with Upstream() as upstream:
        for given, sent in (
            (b'{"stop":["","END","\\n"],"seed":7}', {"stop": ["END", "\n"], "seed": 7}),
            (b'{"seed":7,"stop":""}', {"seed": 7}),
            (b'{"stop":[""]}', {}),
        ):
            call = changed(CALL, parameters_json=given)
            body = await told(upstream, call)
            assert {name: body[name] for name in ("stop", "seed") if name in body} == sent
            assert call.ignored == ["stop"]
        call = changed(CALL, parameters_json=b'{"stop":["END"," "]}')
        assert (await told(upstream, call))["stop"] == ["END", " "]
        assert not call.ignored


async def test_query_of_the_address_goes_along() -> None:
    async with Upstream() as upstream, GeminiUpstream() as gemini:
        for server, address, query in (
            (upstream, f"{upstream.base_url}/?api-version=2025-01-01&a=%2F", "api-version=2025-01-01&a=%2F"),
            (gemini, f"{gemini.base_url}?tenant=7", "alt=sse&tenant=7"),
        ):
            route = ProviderRoute("host", server.kind, address, api_key="secret", version=server.version)
            provider = open_provider(route, Timeouts(), Path("unused.sock"))
            await pieces_of(provider)
            await provider.aclose()
            assert server.requests[-1].query == query


async def test_azure_takes_a_key_in_a_header_of_its_own_and_a_token_in_the_usual_one(tmp_path: Path) -> None:
    heads = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.close()

    socket = tmp_path / "azure.sock"
    async with await asyncio.start_unix_server(answer, socket):
        for key in ("0123abc", "ab.cd.ef"):
            azure = "http://ours.openai.azure.com/openai/deployments/gpt?api-version=2025-01-01"
            provider = opened(OpenAIProvider, azure, api_key=key, socket=socket)
            await failure_of(provider)
            await provider.aclose()
    of_key, of_token = heads
    assert of_key.startswith("POST /openai/deployments/gpt/chat/completions?api-version=2025-01-01 HTTP/1.1")
    assert "api-key: 0123abc\r\n" in of_key
    assert "Authorization: Bearer ab.cd.ef\r\n" in of_token
    assert ("Authorization" in of_key, "api-key" in of_token) == (False, False)
