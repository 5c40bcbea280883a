"""What is known of hosts by their names."""

from typing import Any

import pytest

from services.router.providers.openai.known_hosts import host_of

OPENAI = "https://api.openai.com/v1"
OF_A_REGION = "https://eu.api.openai.com/v1"
AZURE = "https://somewhere.openai.azure.com/openai/deployments/gpt?api-version=2025-01-01"
MISTRAL = "https://api.mistral.ai/v1"
OPENROUTER = "https://OpenRouter.ai/api/v1"
CLOUDFLARE = "https://gateway.ai.cloudflare.com/v1/account/ours/openai"
ALL = (
    OPENAI, OF_A_REGION, AZURE, MISTRAL, OPENROUTER, CLOUDFLARE, "https://api.groq.com/openai/v1",
    "https://api.openai.com.example/v1", "https://myapi.openai.com/v1", "https://openai.azure.com.example/v1",
    "https://api.cerebras.ai/v1", "http://127.0.0.1:8000/v1",
)  # fmt: skip


@pytest.mark.parametrize(
    ("base_url", "fields"),
    [
        (OPENAI, {"store": False}),
        (OF_A_REGION, {"store": False}),
        (AZURE, {"store": False}),
        ("http://127.0.0.1:8000/v1", {"store": False}),
        (OPENROUTER, {"provider": {"zdr": True, "data_collection": "deny"}}),
        ("https://ai-gateway.vercel.sh/v1", {"providerOptions": {"gateway": {"zeroDataRetention": True}}}),
        (CLOUDFLARE, {"store": False}),
        (MISTRAL, {}),
        ("https://api.groq.com/openai/v1", {}),
        ("https://api.cerebras.ai/v1", {}),
        ("https://generativelanguage.googleapis.com/v1beta/openai", {}),
    ],
)
def test_every_host_is_told_to_store_nothing_in_its_own_words(base_url: str, fields: dict[str, Any]) -> None:
    host = host_of(base_url)
    assert host.no_store_fields == fields
    assert bool(host.no_store_headers) == ("cloudflare" in base_url)


def test_hosts_are_told_apart_by_their_whole_names() -> None:
    assert {url for url in ALL if host_of(url).takes_cache_key} == {OPENAI, OF_A_REGION, MISTRAL, OPENROUTER}
    assert {url for url in ALL if host_of(url).api == "auto"} == {OPENAI, OF_A_REGION, AZURE}
    of_openai = {OPENAI, OF_A_REGION, AZURE}
    assert {url for url in ALL if host_of(url).output_field == "max_completion_tokens"} == of_openai
    assert {url for url in ALL if host_of(url).needs_no_limit} == of_openai
    assert {url for url in ALL if host_of(url).takes_no_store} == of_openai | {OPENROUTER, CLOUDFLARE}
