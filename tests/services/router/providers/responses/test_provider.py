"""Which of OpenAI's APIs a model is asked over, and what its refusals teach."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.base import ProviderCall
from services.router.providers.openai import known_hosts
from services.router.providers.responses.provider import ResponsesProvider
from services.router.schema.thoughts import Carried, ResponsesReasoning
from tests.services.router.providers.asking import (
    WEATHER,
    both_ways,
    calls_of,
    changed,
    conversation,
    failure_of,
    opened,
    pieces_of,
    text_of,
)
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.openai import Reply
from tests.support.upstreams.openai_models import refusal
from tests.support.upstreams.responses import OpenAIApis, ResponsesReply, reasoning_item

CHAT, RESPONSES = "chat/completions", "responses"


@pytest.fixture
async def upstream() -> AsyncIterator[OpenAIApis]:
    async with OpenAIApis() as upstream:
        upstream.default_chat_reply = Reply(contents=["Over chat."])
        yield upstream


@pytest.fixture
async def provider(upstream: OpenAIApis) -> AsyncIterator[ResponsesProvider]:
    provider = opened(ResponsesProvider, upstream.base_url, api_key="secret", api="auto")
    yield provider
    await provider.aclose()


def calling(model_name: str, parameters_json: bytes = b"", *, has_tools: bool = True, **fields: Any) -> ProviderCall:
    call = changed(conversation(USER), parameters_json=parameters_json, tools_json=WEATHER if has_tools else b"")
    return replace(call, model_name=model_name, **fields)


async def paths_of(provider: ResponsesProvider, upstream: OpenAIApis, call: ProviderCall) -> list[str]:
    """Returns where a call was posted that is answered."""
    before = len(upstream.requests)
    assert text_of(await pieces_of(provider, call))
    return upstream.paths_asked[before:]


class TestModelsThatRefuseToolsOverChatCompletions:
    """pipecat-ai/pipecat#4043, openai/openai-openapi#541, Wei-Shaw/sub2api#6740 (a model that cannot do without
    reasoning), sandialabs/atlas-ui-3#756 (without any effort from the client), aaif-goose/goose#9825 (at Azure)."""

    @both_ways
    async def test_chat_that_is_refused_is_answered_over_responses_at_once(
        self, call: ProviderCall, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        upstream.replies.append(ResponsesReply(contents=[], calls=[("get_weather", ['{"city":', '"Paris"}'])]))
        asked = calling("our-deployment", b'{"reasoning_effort":"high"}', stream=call.stream)
        assert calls_of(await pieces_of(provider, asked)) == [("get_weather", {"city": "Paris"})]
        # The first refusal is of the name of the output limit.
        assert upstream.paths_asked == [CHAT, CHAT, RESPONSES]
        assert upstream.requests[-1].json["reasoning"] == {"effort": "high"}
        assert asked.ignored == []

    async def test_it_is_remembered_of_that_model_and_shown(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        await paths_of(provider, upstream, calling("our-deployment"))
        assert await paths_of(provider, upstream, calling("our-deployment")) == [RESPONSES]
        assert await paths_of(provider, upstream, calling("our-deployment", has_tools=False)) == [CHAT]
        assert list(provider.learned("our-deployment", None)) == [
            "output_field max_completion_tokens",
            "tools_without_reasoning yes",
        ]
        assert await paths_of(provider, upstream, calling("gpt-4o")) == [CHAT]
        assert provider.learned("gpt-4o", None) == []

    @pytest.mark.parametrize("model_name", ["gpt-5.6-luna", "gpt-6-sol", "gpt-6.1-sol"])
    async def test_model_that_is_known_by_name_costs_no_refusal(
        self, model_name: str, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        assert await paths_of(provider, upstream, calling(model_name)) == [RESPONSES]
        assert await paths_of(provider, upstream, calling(model_name, has_tools=False)) == [CHAT]
        assert provider.learned(model_name, None) == []

    async def test_models_that_take_tools_stay_where_they_are(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        for model_name in ("gpt-4o", "gpt-5-mini", "gpt-5.1"):
            fields = b'{"reasoning_effort":"none"}' if model_name == "gpt-5.1" else b""
            asked = calling(model_name, fields, has_tools=model_name != "gpt-5-mini")
            assert await paths_of(provider, upstream, asked) == [CHAT]


class TestModelsOfOneApi:
    async def test_model_that_chat_completions_do_not_have_is_asked_over_responses(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """pgadmin-org/pgadmin4#9795, n8n-io/n8n#18352: they say so with a 404."""
        upstream.responses_only = {"our-deployment"}
        asked = calling("our-deployment", has_tools=False)
        assert await paths_of(provider, upstream, asked) == [CHAT, RESPONSES]
        assert await paths_of(provider, upstream, asked) == [RESPONSES]
        assert list(provider.learned("our-deployment", None)) == ["api responses"]

    async def test_server_without_responses_goes_on_with_chat_completions(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """Azure/azure-sdk-for-net#50924."""
        upstream.has_responses = False
        asked = calling("gpt-5.6-luna", b'{"reasoning_effort":"high"}')
        assert await paths_of(provider, upstream, asked) == [RESPONSES, CHAT]
        assert asked.ignored == ["reasoning_effort: none instead of high"]
        assert await paths_of(provider, upstream, calling("gpt-5.6-luna")) == [CHAT]
        assert list(provider.learned("gpt-5.6-luna", None)) == ["api chat"]

    async def test_older_version_of_azures_api_goes_on_with_chat_completions(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """Aider-AI/aider#4029."""
        message = "Azure OpenAI Responses API is enabled only for api-version 2025-03-01-preview and later"
        upstream.replies.append(refusal(message, None, "BadRequest"))
        assert await paths_of(provider, upstream, calling("gpt-5.6-luna")) == [RESPONSES, CHAT]

    async def test_model_that_is_nowhere_is_asked_once_over_each(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        upstream.has_responses = False
        upstream.responses_only = {"our-deployment"}
        assert (await failure_of(provider, calling("our-deployment"))).http_status == 404
        assert upstream.paths_asked == [CHAT, RESPONSES]

    async def test_route_may_name_the_api(self, upstream: OpenAIApis) -> None:
        provider = opened(ResponsesProvider, upstream.base_url, api="responses")
        assert await paths_of(provider, upstream, calling("gpt-4o", has_tools=False)) == [RESPONSES]
        upstream.has_responses = False
        assert (await failure_of(provider, calling("gpt-4o"))).http_status == 404
        assert upstream.paths_asked == [RESPONSES, RESPONSES]
        assert provider.learned("gpt-4o", None) == []
        await provider.aclose()


async def test_deployment_of_azures_has_its_responses_where_azure_has_those_of_all(upstream: OpenAIApis) -> None:
    upstream.other_paths = ("/openai/v1/responses",)
    azure = f"{upstream.base_url.removesuffix('/v1')}/openai"
    await upstream.stop()
    await upstream.start(upstream.port)
    upstream.path = "/openai/v1/responses"
    for address, query, model in (
        ("deployments/ours?api-version=2025-01-01-preview", "", "ours"),
        ("deployments/ours?team=search&api-version=2025-01-01-preview", "team=search", "ours"),
        ("v1?api-version=preview", "api-version=preview", "gpt-5.6-luna"),
    ):
        provider = opened(ResponsesProvider, f"{azure}/{address}", api="auto")
        assert await paths_of(provider, upstream, calling("gpt-5.6-luna")) == ["/openai/v1/responses"]
        assert (upstream.requests[-1].query, upstream.requests[-1].json["model"]) == (query, model)
        await provider.aclose()


class TestWhatRefusalsOverResponsesTeach:
    async def test_model_that_does_not_reason_is_not_asked_for_reasoning_again(self, upstream: OpenAIApis) -> None:
        """pydantic/pydantic-ai#2865, microsoft/amplifier#199, BoundaryML/baml#2708."""
        provider = opened(ResponsesProvider, upstream.base_url, api="responses")
        asked = calling("gpt-4o", b'{"reasoning_effort":"low"}')
        assert len(await paths_of(provider, upstream, asked)) == 2
        assert asked.ignored == ["reasoning_effort"]
        assert list(provider.learned("gpt-4o", None)) == ["efforts none"]
        assert len(await paths_of(provider, upstream, calling("gpt-4o"))) == 1
        await provider.aclose()

    async def test_model_without_encrypted_reasoning_is_not_asked_for_it_again(self, upstream: OpenAIApis) -> None:
        """pydantic/pydantic-ai#2915, earendil-works/pi#6228."""
        upstream.refuses_encrypted = {"our-deployment"}
        provider = opened(ResponsesProvider, upstream.base_url, api="responses")
        for times in (2, 1):
            assert len(await paths_of(provider, upstream, calling("our-deployment"))) == times
        assert list(provider.learned("our-deployment", None)) == ["refused reasoning.encrypted_content"]
        await provider.aclose()

    async def test_organization_that_is_not_verified_gets_no_summaries(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """continuedev/continue#12031, OpenHands/software-agent-sdk#987."""
        upstream.is_unverified = True
        asked = calling("gpt-5.6-luna", keeps_thoughts=True)
        for times in (2, 1):
            assert len(await paths_of(provider, upstream, asked)) == times
        assert "summary" not in upstream.requests[-1].json.get("reasoning", {})
        assert list(provider.learned("gpt-5.6-luna", None)) == ["refused reasoning.summary"]

    async def test_effort_that_the_model_does_not_take_is_learned_over_either_api(self, upstream: OpenAIApis) -> None:
        provider = opened(ResponsesProvider, upstream.base_url, api="responses")
        asked = calling("our-deployment", b'{"reasoning_effort":"minimal"}')
        await paths_of(provider, upstream, asked)
        assert upstream.requests[-1].json["reasoning"] == {"effort": "low"}
        assert asked.ignored == ["reasoning_effort: low instead of minimal"]
        await provider.aclose()


def thinking(*names: str, key: str = "k") -> ProviderCall:
    """A call with a turn of calls for each name, in which the model thought."""
    messages: list[dict[str, Any]] = [USER]
    thoughts = {}
    for name in names:
        item = {each: value for each, value in reasoning_item(f"rs_{name}", name, key=key).items() if each != "status"}
        thoughts[len(messages)] = {0: Carried("openai", "", [ResponsesReasoning(msgspec.json.encode(item).decode())])}
        messages += [called((name, "get_time", "{}")), gave(name, "1")]
    call = changed(conversation(*messages), tools_json=WEATHER)
    return replace(call, model_name="gpt-5.6-luna", messages=replace(call.messages, thoughts=thoughts))


def reasonings_of(upstream: OpenAIApis) -> list[int]:
    """How many items of reasoning each request had."""
    return [sum(item.get("type") == "reasoning" for item in each.json["input"]) for each in upstream.requests]


class TestReasoningThatIsRefused:
    async def test_it_comes_back_without_its_ids(self, provider: ResponsesProvider, upstream: OpenAIApis) -> None:
        """openai/codex#35739, vercel/ai#12689: nothing is stored, so nothing is found."""
        await paths_of(provider, upstream, thinking("a", "b"))
        assert reasonings_of(upstream) == [2]

    async def test_it_comes_back_with_its_ids_where_azure_wants_them(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """NousResearch/hermes-agent#63257."""
        upstream.wants_ids = True
        for times in (2, 1):
            assert len(await paths_of(provider, upstream, thinking("a", "b"))) == times
        assert reasonings_of(upstream) == [2, 2, 2]
        assert list(provider.learned("gpt-5.6-luna", None)) == ["past_reasoning with_ids"]

    async def test_only_the_latest_comes_back_where_azure_takes_no_more(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """NousResearch/hermes-agent#101243."""
        upstream.takes_one_turn = True
        for times in (2, 1):
            assert len(await paths_of(provider, upstream, thinking("a", "b"))) == times
        assert reasonings_of(upstream) == [2, 1, 1]
        assert list(provider.learned("gpt-5.6-luna", None)) == ["past_reasoning latest"]

    async def test_chat_goes_on_without_what_cannot_be_decrypted(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """openai/codex#8145, Wei-Shaw/sub2api#2863, VicBilibily/GCMP#345: clients send it again in every turn."""
        assert await paths_of(provider, upstream, thinking("a", key="another")) == [RESPONSES, RESPONSES]
        assert reasonings_of(upstream) == [1, 0]
        # It says nothing of the model.
        assert provider.learned("gpt-5.6-luna", None) == []
        assert await paths_of(provider, upstream, thinking("a")) == [RESPONSES]

    async def test_chat_goes_on_if_the_refusal_comes_in_the_stream(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        """smallmain/vscode-unify-chat-provider#178."""
        message = "The encrypted content for item rs_a could not be verified. Reason: Encrypted content could not be"
        event = {"type": "error", "error": {"type": "invalid_request_error", "message": message, "param": None}}
        upstream.replies.append(ResponsesReply(events=[msgspec.json.encode(event).decode()]))
        assert await paths_of(provider, upstream, thinking("a")) == [RESPONSES, RESPONSES]
        assert reasonings_of(upstream) == [1, 0]

    async def test_chat_stays_where_it_is_if_ids_are_wanted_and_then_not_found(
        self, provider: ResponsesProvider, upstream: OpenAIApis
    ) -> None:
        upstream.replies.append(refusal("The request payload is invalid.", None, "invalid_payload"))
        assert await paths_of(provider, upstream, thinking("a")) == [RESPONSES] * 3
        assert reasonings_of(upstream) == [1, 1, 0]

    async def test_another_refusal_stays_one(self, provider: ResponsesProvider, upstream: OpenAIApis) -> None:
        upstream.replies.append(refusal("Invalid value: 'x'.", "input", "invalid_value"))
        assert (await failure_of(provider, thinking("a"))).http_status == 400
        assert reasonings_of(upstream) == [1]


async def test_messages_of_openais_and_azures_models_have_phases(
    upstream: OpenAIApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(known_hosts.HOSTS, "127.0.0.1", known_hosts.HOSTS["api.openai.com"])
    provider = opened(ResponsesProvider, upstream.base_url, api="auto")
    call = conversation(USER, {"role": "assistant", "content": "Hello"}, USER)
    await pieces_of(provider, replace(call, model_name="gpt-5.6-luna"))
    assert upstream.requests[-1].json["input"][1] == {
        "role": "assistant",
        "content": "Hello",
        "phase": "final_answer",
    }
    await provider.aclose()
