"""The examples of clouds in docs/providers.md, as an operator would copy them, at servers that play these clouds."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.router.providers import open_provider
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.routes.routes import load_routes
from tests.services.router.providers.asking import CALL, pieces_of, text_of
from tests.support.upstreams.azure import API_KEY, AzureUpstream
from tests.support.upstreams.bedrock import KEY_ID, SECRET_KEY, BedrockOpenAIUpstream, BedrockUpstream
from tests.support.upstreams.openai import Upstream
from tests.support.upstreams.token_server import CLIENT_SECRET, ROLE, SUBJECT_TOKEN, TokenServer
from tests.support.upstreams.vertex import VertexClaudeUpstream, VertexGeminiUpstream

PAGE = Path(__file__).parents[4] / "docs" / "providers.md"
REST = """
[models.{name}]
provider = "{name}"
name = "{model}"
context_tokens = 1000
max_output_tokens = 100
"""
MODELS = {
    "azure": "gpt-4o",
    "entra": "gpt-4o",
    "gemini-on-vertex": "gemini-3-flash",
    "claude-on-vertex": "claude-opus-4-6@20260115",
    "bedrock": "anthropic.claude-opus-4-6-v1:0",
    "bedrock-openai": "openai.gpt-oss-120b-1:0",
}


def example() -> str:
    """Returns the providers of the section, as one file."""
    section = PAGE.read_text().partition("\n## Clouds\n")[2].partition("\n## ")[0]
    return "\n".join(line[4:] for line in section.splitlines() if line.startswith("    ") or not line)


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens


@pytest.fixture
def routes(tmp_path: Path, tokens: TokenServer) -> dict[str, ProviderRoute]:
    """The providers of the page, with the files and variables that it names."""
    (tmp_path / "azure.key").write_text(API_KEY)
    (tmp_path / "entra.secret").write_text(CLIENT_SECRET)
    (tmp_path / "service-account.json").write_bytes(tokens.service_account())
    (tmp_path / "workload-identity.json").write_bytes(tokens.external_account({"file": "subject"}))
    (tmp_path / "subject").write_text(SUBJECT_TOKEN)
    environ = {
        "AWS_ROLE_ARN": ROLE,
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "subject"),
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    models = "".join(REST.format(name=name, model=model) for name, model in MODELS.items())
    listed = ", ".join(f'"{name}"' for name in MODELS)
    classes = "".join(f"[classes.{name}]\nmodels = [{listed}]\n" for name in ("mezzo", "forte", "fortissimo"))
    path = tmp_path / "routes.toml"
    path.write_text(example() + models + classes)
    return dict(load_routes(path, environ).providers)


def played(name: str, tokens: TokenServer) -> Upstream:
    upstreams: dict[str, Any] = {
        "azure": AzureUpstream,
        "entra": AzureUpstream,
        "gemini-on-vertex": VertexGeminiUpstream,
        "claude-on-vertex": VertexClaudeUpstream,
        "bedrock": BedrockUpstream,
        "bedrock-openai": BedrockOpenAIUpstream,
    }
    upstream: Upstream = upstreams[name](tokens)
    return upstream


def test_page_has_an_example_of_each() -> None:
    assert re.findall(r"^\[providers\.([\w-]+)\]$", example(), re.MULTILINE) == list(MODELS)


@pytest.mark.parametrize("name", MODELS)
async def test_example_answers_at_its_cloud(
    name: str, routes: dict[str, ProviderRoute], tokens: TokenServer, tmp_path: Path
) -> None:
    async with played(name, tokens) as upstream:
        route = replace(routes[name], base_url=upstream.base_url.rstrip("/"))
        credentials: Any = route.credentials
        if name == "azure":
            # Its host is known for it, but not the one that plays it.
            route = replace(route, key_header="api-key")
        elif name == "entra":
            route = replace(route, credentials=replace(credentials, token_url=tokens.entra_url))
        elif name == "bedrock":
            assert credentials.sts_url == "https://sts.ca-central-1.amazonaws.com"
            route = replace(route, credentials=replace(credentials, sts_url=tokens.base_url))
        provider = open_provider(route, Timeouts(), tmp_path / "no-model.sock")
        for stream in (True, False):
            call = replace(CALL, model_name=MODELS[name], stream=stream)
            assert text_of(await pieces_of(provider, call)) == "Hello, world!"
        await provider.aclose()
