"""Calls with credentials that expire, whatever cloud they are for: chats go on while these change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.authentication.aws_keys import AwsAccessKey
from services.router.providers.authentication.aws_web_identity import AwsWebIdentity
from services.router.providers.authentication.client_credentials import ClientCredentials
from services.router.providers.authentication.credentials import Credentials
from services.router.providers.authentication.google_service_account import GoogleServiceAccount
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import SigningScope
from services.router.providers.authentication.token_file import TokenFile
from services.router.providers.base import Failure, ProviderError, Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.http.http_provider import HttpProvider
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import CALL, WHOLE_CALL, failure_of, opened, pieces_of, text_of
from tests.support.upstreams.azure import API_KEY, API_VERSION, AzureUpstream
from tests.support.upstreams.bedrock import KEY_ID, REGION, SECRET_KEY, BedrockOpenAIUpstream, BedrockUpstream
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.upstreams.token_server import (
    CLIENT_ID,
    CLIENT_SECRET,
    ROLE,
    SCOPE,
    SUBJECT_TOKEN,
    TokenReply,
    TokenServer,
)
from tests.support.upstreams.vertex import VertexGeminiUpstream, VertexOpenAIUpstream

QUERY = (("api-version", API_VERSION),)


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens


@pytest.fixture
async def azure(tokens: TokenServer) -> AsyncIterator[AzureUpstream]:
    async with AzureUpstream(tokens) as azure:
        yield azure


@pytest.fixture
async def provider(azure: AzureUpstream, tokens: TokenServer) -> AsyncIterator[OpenAIProvider]:
    provider = opened(OpenAIProvider, azure.base_url, Timeouts(), credentials=entra(tokens), query=QUERY)
    yield provider
    await provider.aclose()


def entra(tokens: TokenServer) -> ClientCredentials:
    return ClientCredentials(tokens.entra_url, CLIENT_ID, SCOPE, client_secret=Secret(value=CLIENT_SECRET))


def service_account(tokens: TokenServer, folder: Path) -> GoogleServiceAccount:
    path = folder / "service-account.json"
    path.write_bytes(tokens.service_account())
    return GoogleServiceAccount(path)


def web_identity(tokens: TokenServer, folder: Path) -> AwsWebIdentity:
    path = folder / "token"
    path.write_text(SUBJECT_TOKEN)
    return AwsWebIdentity(SigningScope(REGION, "bedrock"), ROLE, path, tokens.base_url)


async def test_deployment_of_azure_is_asked_with_its_key_and_version() -> None:
    async with AzureUpstream() as azure:
        route: dict[str, Any] = {"api_key": API_KEY, "key_header": "api-key", "query": QUERY}
        provider = opened(OpenAIProvider, azure.base_url, Timeouts(), **route)
        assert text_of(await pieces_of(provider)) == "Hello, world!"
        await provider.aclose()
        assert azure.requests[0].target == f"/openai/deployments/chat/chat/completions?api-version={API_VERSION}"


async def test_many_chats_share_one_token(provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream) -> None:
    await asyncio.gather(*(pieces_of(provider) for _ in range(10)))
    assert len(tokens.requests) == 1
    assert len(azure.requests) == 10


async def test_token_is_there_before_the_first_chat(provider: OpenAIProvider, tokens: TokenServer) -> None:
    await provider.warm()
    assert len(tokens.requests) == 1
    await pieces_of(provider)
    assert len(tokens.requests) == 1


async def test_refused_token_is_replaced_within_the_chat(
    provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream
) -> None:
    await pieces_of(provider)
    tokens.revoke_all()
    assert text_of(await pieces_of(provider)) == "Hello, world!"
    first, refused, renewed = (request.headers["Authorization"] for request in azure.requests)
    assert first == refused != renewed


async def test_chat_is_asked_once_more_and_not_again(
    provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream
) -> None:
    azure.replies.extend(Reply(status=401, body="{}") for _ in range(2))
    assert (await failure_of(provider)).http_status == 401
    assert len(azure.requests) == len(tokens.requests) == 2


async def test_forbidden_model_renews_nothing(
    provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream
) -> None:
    azure.replies.append(Reply(status=403, body="{}"))
    assert (await failure_of(provider)).http_status == 403
    assert len(azure.requests) == len(tokens.requests) == 1


@pytest.mark.parametrize(
    "reply", [TokenReply(500), TokenReply(body="<html>canary</html>"), TokenReply(401, '{"error":"invalid_client"}')]
)
async def test_without_a_token_the_next_model_is_tried(
    provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream, reply: TokenReply
) -> None:
    tokens.replies.append(reply)
    failure = await failure_of(provider)
    assert failure.failure is Failure.PROVIDER
    assert failure.what.startswith("has no valid credentials: ")
    assert "canary" not in failure.what
    assert provider.credentials_failure
    # The token server is not asked for every chat.
    await failure_of(provider)
    assert len(tokens.requests) == 1
    assert azure.requests == []


async def test_chats_run_on_while_their_token_changes(
    provider: OpenAIProvider, tokens: TokenServer, azure: AzureUpstream
) -> None:
    azure.replies.append(Reply(event_delay_s=0.05))
    running = asyncio.create_task(pieces_of(provider))
    await azure.received()
    tokens.revoke_all()
    others = await asyncio.gather(*(pieces_of(provider) for _ in range(5)))
    assert [text_of(pieces) for pieces in (await running, *others)] == ["Hello, world!"] * 6
    assert len(tokens.requests) == 2


async def test_slow_token_server_delays_only_chats_that_need_it(provider: OpenAIProvider, tokens: TokenServer) -> None:
    await pieces_of(provider)
    tokens.replies.append(TokenReply(hangs=True))
    tokens.revoke_all()
    waiting = asyncio.create_task(pieces_of(provider))
    async with asyncio.timeout(60):
        while len(tokens.requests) < 2:
            await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_cache_key_stays_when_the_token_changes(azure: AzureUpstream, tokens: TokenServer) -> None:
    route: dict[str, Any] = {"credentials": entra(tokens), "query": QUERY, "prompt_cache_key": True}
    provider = opened(OpenAIProvider, azure.base_url, Timeouts(), **route)
    call = replace(CALL, cache_identity=b"same beginning")
    await pieces_of(provider, call)
    tokens.revoke_all()
    await pieces_of(provider, call)
    await provider.aclose()
    keys = {request.json["prompt_cache_key"] for request in azure.requests}
    sent = {request.headers["Authorization"] for request in azure.requests}
    assert (len(keys), len(sent)) == (1, 2)


async def test_cache_key_stays_when_a_token_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    async with Upstream() as upstream:
        route: dict[str, Any] = {"credentials": TokenFile(path), "prompt_cache_key": True}
        provider = opened(OpenAIProvider, upstream.base_url, Timeouts(), **route)
        call = replace(CALL, cache_identity=b"same beginning")
        await pieces_of(provider, call)
        path.write_text("second")
        upstream.replies.append(Reply(status=401, body="{}"))
        await pieces_of(provider, call)
        await provider.aclose()
        assert [request.headers["Authorization"] for request in upstream.requests] == [
            *("Bearer first", "Bearer first", "Bearer second")
        ]
        assert len({request.json["prompt_cache_key"] for request in upstream.requests}) == 1


async def test_vertex_answers_as_gemini_and_is_sent_no_store(tokens: TokenServer, tmp_path: Path) -> None:
    async with VertexGeminiUpstream(tokens) as vertex:
        route: dict[str, Any] = {"credentials": service_account(tokens, tmp_path), "platform": "vertex"}
        provider = opened(GeminiProvider, vertex.base_url, Timeouts(), **route)
        for call in (CALL, WHOLE_CALL):
            assert text_of(await pieces_of(provider, replace(call, model_name="gemini-3-flash"))) == "Hello, world!"
        await provider.aclose()
        targets = [request.target.rpartition("/")[2] for request in vertex.requests]
        assert targets == ["gemini-3-flash:streamGenerateContent?alt=sse", "gemini-3-flash:generateContent"]


async def test_vertex_and_bedrock_answer_clients_of_openais(tokens: TokenServer, tmp_path: Path) -> None:
    own: list[tuple[Callable[[TokenServer], Upstream], Credentials]] = [
        (VertexOpenAIUpstream, service_account(tokens, tmp_path)),
        (BedrockOpenAIUpstream, web_identity(tokens, tmp_path)),
    ]
    for make, credentials in own:
        async with make(tokens) as upstream:
            provider = opened(OpenAIProvider, upstream.base_url, Timeouts(), credentials=credentials)
            assert text_of(await pieces_of(provider)) == "Hello, world!"
            await provider.aclose()


def bedrock_provider(upstream: BedrockUpstream, credentials: Credentials | None, **of: Any) -> HttpProvider:
    route = {"credentials": credentials, "platform": "bedrock", "version": "bedrock-2023-05-31", **of}
    return opened(AnthropicProvider, f"http://127.0.0.1:{upstream.port}", Timeouts(), **route)


CLAUDE = replace(CALL, model_name="anthropic.claude-opus-4-6-v1:0")


async def test_bedrock_takes_a_key_of_its_own() -> None:
    async with BedrockUpstream() as upstream:
        provider = bedrock_provider(upstream, None, api_key="canary-of-a-bedrock-key", key_header="authorization")
        assert text_of(await pieces_of(provider, CLAUDE)) == "Hello, world!"
        await provider.aclose()


async def test_keys_of_a_role_are_renewed_when_they_have_expired(tokens: TokenServer, tmp_path: Path) -> None:
    async with BedrockUpstream(tokens) as upstream:
        provider = bedrock_provider(upstream, web_identity(tokens, tmp_path))
        await pieces_of(provider, CLAUDE)
        tokens.revoke_all()
        assert text_of(await pieces_of(provider, CLAUDE)) == "Hello, world!"
        await provider.aclose()
        assert len(upstream.requests) == 3
        assert len(tokens.keys) == 2


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
async def test_requests_are_signed_for_the_servers_time(ahead_s: float) -> None:
    async with BedrockUpstream() as upstream:
        upstream.signatures.ahead_s = ahead_s
        keys = AwsAccessKey(SigningScope(REGION, "bedrock"), Secret(value=KEY_ID), Secret(value=SECRET_KEY))
        provider = bedrock_provider(upstream, keys)
        assert text_of(await pieces_of(provider, CLAUDE)) == "Hello, world!"
        assert text_of(await pieces_of(provider, CLAUDE)) == "Hello, world!"
        await provider.aclose()
        assert len(upstream.requests) == 3


@pytest.mark.parametrize(
    ("region", "service", "secret"),
    [("us-east-1", "bedrock", SECRET_KEY), (REGION, "s3", SECRET_KEY), (REGION, "bedrock", "another")],
)
async def test_other_region_service_and_key_are_refused(region: str, service: str, secret: str) -> None:
    async with BedrockUpstream() as upstream:
        keys = AwsAccessKey(SigningScope(region, service), Secret(value=KEY_ID), Secret(value=secret))
        provider = bedrock_provider(upstream, keys)
        failure: ProviderError = await failure_of(provider, CLAUDE)
        await provider.aclose()
        assert (failure.http_status, failure.failure) == (403, Failure.PROVIDER)
        assert len(upstream.requests) == 1


async def test_server_that_tells_another_time_each_time_is_asked_twice() -> None:
    dates = [f"Thu, 19 Nov 2026 {hour:02}:00:00 GMT" for hour in range(0, 24, 6)]
    wrong_time = {"x-amzn-ErrorType": "InvalidSignatureException"}
    async with BedrockUpstream() as upstream:
        upstream.replies.extend(Reply(status=403, body="{}", headers={**wrong_time, "Date": date}) for date in dates)
        keys = AwsAccessKey(SigningScope(REGION, "bedrock"), Secret(value=KEY_ID), Secret(value=SECRET_KEY))
        upstream.signatures.check = lambda recorded: None  # type: ignore[method-assign]
        provider = bedrock_provider(upstream, keys)
        await failure_of(provider, CLAUDE)
        await provider.aclose()
        assert len(upstream.requests) == 2
