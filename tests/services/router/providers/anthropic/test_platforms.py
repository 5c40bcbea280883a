"""Claude at Google's Vertex AI and at Amazon Bedrock, over real sockets: the same answers as at Anthropic."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from services.router.providers.anthropic.past_thinking import BINDING_BETA
from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.authentication.aws_keys import AwsAccessKey
from services.router.providers.authentication.google_metadata import GoogleMetadata
from services.router.providers.authentication.secret import Secret
from services.router.providers.authentication.sigv4 import SigningScope
from services.router.providers.base import Failure, ProviderCall, Timeouts
from services.router.schema.thoughts import Carried, ThinkingBlock
from tests.services.router.providers.asking import (
    CALL,
    WHOLE_CALL,
    both_ways,
    broken_off,
    calls_of,
    changed,
    conversation,
    failure_of,
    finish_of,
    hidden_of,
    opened,
    pieces_of,
    text_of,
)
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams import bedrock
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.bedrock import KEY_ID, REGION, SECRET_KEY, BedrockUpstream
from tests.support.upstreams.token_server import TokenServer
from tests.support.upstreams.vertex import VertexClaudeUpstream

MODELS = {"vertex": "claude-opus-4-6@20260115", "bedrock": "us.anthropic.claude-opus-4-6-v1:0"}
OLDER = {"vertex": "vertex-2023-10-16", "bedrock": "bedrock-2023-05-31"}
SIGNED = AwsAccessKey(SigningScope(REGION, "bedrock"), Secret(value=KEY_ID), Secret(value=SECRET_KEY))
HELLO = [
    b'{"type":"message_start","message":{"usage":{"input_tokens":3}}}',
    b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hello"}}',
]


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens


@pytest.fixture(params=["vertex", "bedrock"])
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def upstream(platform: str, tokens: TokenServer) -> AsyncIterator[AnthropicUpstream]:
    async with BedrockUpstream() if platform == "bedrock" else VertexClaudeUpstream(tokens) as upstream:
        yield upstream


@pytest.fixture
async def provider(platform: str, upstream: AnthropicUpstream, tokens: TokenServer) -> AsyncIterator[AnthropicProvider]:
    provider = connect(platform, upstream, tokens, OLDER[platform])
    yield provider
    await provider.aclose()


def connect(
    platform: str, upstream: AnthropicUpstream, tokens: TokenServer, version: str, **of: object
) -> AnthropicProvider:
    credentials = SIGNED if platform == "bedrock" else GoogleMetadata(metadata_url=tokens.base_url)
    route = {"platform": platform, "credentials": credentials, "version": version}
    return opened(AnthropicProvider, upstream.base_url.rstrip("/"), Timeouts(), **{**route, **of})


def asked(platform: str, call: ProviderCall = CALL) -> ProviderCall:
    return replace(call, model_name=MODELS[platform])


@both_ways
async def test_answer_is_that_of_anthropic(
    call: ProviderCall, platform: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    calls = [("get_weather", ['{"city":', '"Paris"}'])]
    upstream.replies.append(AnthropicReply(thinking="Hm.", finish_reason="tool_use", calls=calls))
    turns = conversation({"role": "user", "content": "Weather?"})
    pieces = await pieces_of(provider, replace(asked(platform, turns), stream=call.stream))
    assert text_of(pieces) == "Hello, world!"
    assert hidden_of(pieces) == "Hm."
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"})]
    assert finish_of(pieces) == "tool_calls"
    usage = pieces[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (18, 7, 5)
    assert usage.cache_write_tokens == 2


@both_ways
async def test_model_and_version_are_where_the_cloud_wants_them(
    call: ProviderCall, platform: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    await pieces_of(provider, asked(platform, call))
    [request] = upstream.requests
    if platform == "bedrock":
        method = "invoke-with-response-stream" if call.stream else "invoke"
        assert request.target == f"/model/us.anthropic.claude-opus-4-6-v1:0/{method}"
    else:
        method = "streamRawPredict" if call.stream else "rawPredict"
        assert request.target.endswith(f"/publishers/anthropic/models/claude-opus-4-6@20260115:{method}")
    assert request.json["anthropic_version"] == OLDER[platform]
    assert "anthropic-version" not in {name.lower() for name in request.headers}


async def test_newer_version_takes_no_sampling(
    platform: str, upstream: AnthropicUpstream, tokens: TokenServer, provider: AnthropicProvider
) -> None:
    newer = connect(platform, upstream, tokens, VERSION_2026)
    older_model = {"vertex": "claude-opus-4-5@20251101", "bedrock": "anthropic.claude-opus-4-5-20251101-v1:0"}
    call = replace(changed(CALL, parameters_json=b'{"temperature":0.5}'), model_name=older_model[platform])
    await pieces_of(provider, call)
    await pieces_of(newer, replace(call, ignored=[]))
    await newer.aclose()
    assert [request.json.get("temperature") for request in upstream.requests] == [0.5, None]


async def test_betas_go_where_the_cloud_reads_them(
    platform: str, upstream: AnthropicUpstream, tokens: TokenServer
) -> None:
    headers = (("anthropic-beta", "context-1m-2025-08-07"), ("x-team", "search"))
    provider = connect(platform, upstream, tokens, OLDER[platform], headers=headers)
    await pieces_of(provider, asked(platform))
    await provider.aclose()
    [request] = upstream.requests
    assert request.headers["x-team"] == "search"
    if platform == "bedrock":
        assert request.json["anthropic_beta"] == ["context-1m-2025-08-07"]
        assert "anthropic-beta" not in request.headers
    else:
        assert request.headers["anthropic-beta"] == "context-1m-2025-08-07"


async def test_name_of_a_profile_is_one_part_of_the_path(tokens: TokenServer) -> None:
    async with BedrockUpstream() as upstream:
        provider = connect("bedrock", upstream, tokens, OLDER["bedrock"])
        name = "arn:aws:bedrock:ca-central-1:123456789012:inference-profile/us.anthropic.claude-opus-4-6-v1:0"
        assert text_of(await pieces_of(provider, replace(CALL, model_name=name))) == "Hello, world!"
        await provider.aclose()
        assert "inference-profile%2Fus.anthropic" in upstream.requests[0].target


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("throttlingException", Failure.BUSY),
        ("serviceUnavailableException", Failure.BUSY),
        ("validationException", Failure.REFUSED),
        ("modelStreamErrorException", Failure.PROVIDER),
        ("modelTimeoutException", Failure.PROVIDER),
        ("internalServerException", Failure.PROVIDER),
    ],
)
async def test_exception_of_amazons_has_its_meaning(name: str, failure: Failure, tokens: TokenServer) -> None:
    async with BedrockUpstream() as upstream:
        provider = connect("bedrock", upstream, tokens, OLDER["bedrock"])
        upstream.replies.append(bedrock.reply_of([bedrock.exception(name, "canary")]))
        first = await failure_of(provider, asked("bedrock"))
        begun = [bedrock.chunk(event) for event in HELLO]
        upstream.replies.append(bedrock.reply_of([*begun, bedrock.exception(name, "canary")]))
        pieces, later = await broken_off(provider, asked("bedrock"))
        await provider.aclose()
    assert first.failure is later.failure is failure
    assert text_of(pieces) == "Hello"
    assert "canary" not in str(first) + str(later)


async def test_damaged_and_cut_streams_fail_after_what_came_before(tokens: TokenServer) -> None:
    begun = [bedrock.chunk(event) for event in HELLO]
    damaged = bytearray(bedrock.chunk(b'{"type":"ping"}'))
    damaged[-1] ^= 1
    async with BedrockUpstream() as upstream:
        provider = connect("bedrock", upstream, tokens, OLDER["bedrock"])
        for last in (bytes(damaged), begun[1][:20], b""):
            upstream.replies.append(bedrock.reply_of([*begun, last]))
            pieces, _ = await broken_off(provider, asked("bedrock"))
            assert text_of(pieces) == "Hello"
        await provider.aclose()


async def test_prompt_that_is_too_long_for_bedrock_is_told_as_that(tokens: TokenServer) -> None:
    async with BedrockUpstream() as upstream:
        provider = connect("bedrock", upstream, tokens, OLDER["bedrock"])
        upstream.replies.append(AnthropicReply(status=400, body='{"message":"Input is too long for requested model."}'))
        assert (await failure_of(provider, asked("bedrock", WHOLE_CALL))).failure is Failure.CONTEXT
        await provider.aclose()


NEWEST = {"vertex": "claude-opus-5-5@20261001", "bedrock": "global.anthropic.claude-opus-5-5-20261001-v1:0"}


async def test_thoughts_come_back_with_results_and_are_bound_as_at_anthropic(
    platform: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    turns = conversation(USER, called(("call_1", "get_time", "{}")), gave("call_1", "noon"))
    thoughts = {1: {0: Carried("f", "", [ThinkingBlock("So.", "c2ln")])}}
    call = replace(turns, model_name=NEWEST[platform], messages=replace(turns.messages, thoughts=thoughts))
    assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    [request] = upstream.requests
    [answer] = [message["content"] for message in request.json["messages"] if message["role"] == "assistant"]
    assert answer[0] == {"type": "thinking", "thinking": "So.", "signature": "c2ln"}
    assert request.json["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    betas = request.json.get("anthropic_beta") or request.headers["anthropic-beta"].split(",")
    assert betas == [BINDING_BETA]
