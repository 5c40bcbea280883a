"""Requests that tell providers to store nothing, and which cache to look in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.router.providers import open_provider
from services.router.providers.base import ProviderCall, ProviderRoute, Timeouts
from services.router.providers.openai.provider import no_store_fields, no_store_headers, takes_cache_key
from tests.services.router.providers.asking import CALL, both_ways, pieces_of
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


@pytest.mark.parametrize(
    ("base_url", "fields"),
    [
        ("https://api.openai.com/v1", {"store": False}),
        ("https://eu.api.openai.com/v1", {"store": False}),
        ("https://somewhere.openai.azure.com/openai/v1", {"store": False}),
        ("http://127.0.0.1:8000/v1", {"store": False}),
        ("https://OpenRouter.ai/api/v1", {"provider": {"zdr": True, "data_collection": "deny"}}),
        (
            "https://ai-gateway.vercel.sh/v1",
            {"providerOptions": {"gateway": {"zeroDataRetention": True}}},
        ),
        ("https://gateway.ai.cloudflare.com/v1/account/ours/openai", {"store": False}),
        ("https://api.mistral.ai/v1", {}),
        ("https://api.groq.com/openai/v1", {}),
    ],
)
def test_every_host_is_told_in_its_own_words(base_url: str, fields: dict[str, Any]) -> None:
    assert no_store_fields(base_url) == fields
    is_logged_by_default = "cloudflare" in base_url
    assert no_store_headers(base_url) == ({"cf-aig-collect-log-payload": "false"} if is_logged_by_default else {})


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


def test_cache_keys_are_sent_to_hosts_that_are_known_to_take_them() -> None:
    hosts = {"api.openai.com", "eu.api.openai.com", "api.mistral.ai", "openrouter.ai"}
    others = {"api.groq.com", "api.openai.com.example", "myapi.openai.com", "127.0.0.1"}
    assert {host for host in hosts | others if takes_cache_key(f"https://{host}/v1")} == hosts
