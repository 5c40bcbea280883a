import pytest

from services.router.providers.base import ProviderRoute
from services.router.providers.http.telemetry_names import telemetry_name


@pytest.mark.parametrize(
    ("kind", "base_url", "name"),
    [
        ("openai", "https://api.openai.com/v1", "openai"),
        ("openai", "https://us.api.openai.com/v1", "openai"),
        ("openai", "https://house.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("openai", "https://house.services.ai.azure.com/models", "azure.ai.inference"),
        ("openai", "https://bedrock-runtime.ca-central-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("openai", "https://api.mistral.ai/v1", "mistral_ai"),
        ("openai", "https://api.groq.com/openai/v1", "groq"),
        ("openai", "https://api.x.ai/v1", "x_ai"),
        ("anthropic", "https://api.anthropic.com", "anthropic"),
        ("anthropic", "https://proxy.internal", "anthropic"),
        ("anthropic", "https://bedrock-mantle.us-east-1.api.aws/anthropic", "aws.bedrock"),
        ("gemini", "https://generativelanguage.googleapis.com", "gcp.gemini"),
        ("gemini", "https://northamerica-northeast1-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("anthropic", "https://aiplatform.eu.rep.googleapis.com", "gcp.vertex_ai"),
        ("gemini", "https://proxy.internal", "gcp.gen_ai"),
        # Not one of theirs: the name that it has in the routes.
        ("openai", "http://vllm.internal:8000/v1", "house"),
        ("openai", "https://api.openai.com.evil.example/v1", "house"),
        ("openai", "https://notapi.openai.com/v1", "house"),
        ("local", "", "house"),
    ],
)
def test_well_known_providers_have_the_names_of_the_conventions(kind: str, base_url: str, name: str) -> None:
    assert telemetry_name(ProviderRoute("house", kind, base_url)) == name
