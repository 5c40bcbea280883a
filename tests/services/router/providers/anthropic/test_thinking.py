"""Effort, thinking, forced calls and last messages at servers that refuse them in their vendor's words."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.abilities import Abilities
from services.router.providers.anthropic.platforms import VERSION_2023
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import ProviderCall
from tests.services.router.providers.asking import CALL, WEATHER, changed, conversation, opened, pieces_of, text_of
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.anthropic_models import AnthropicModels


@pytest.fixture
async def upstream() -> AsyncIterator[AnthropicModels]:
    async with AnthropicModels() as upstream:
        yield upstream


def calling(model_name: str, tools_json: bytes = b"", tool_choice_json: bytes = b"", **parameters: Any) -> ProviderCall:
    call = changed(
        CALL,
        parameters_json=msgspec.json.encode(parameters),
        tools_json=tools_json,
        tool_choice_json=tool_choice_json,
    )
    return replace(call, model_name=model_name, max_tokens=8192)


async def asked(upstream: AnthropicModels, call: ProviderCall, **extra: Any) -> Any:
    """Returns the one request that the call is, for which nothing has to be learned."""
    before = len(upstream.requests)
    provider = opened(
        AnthropicProvider,
        upstream.base_url,
        api_key="secret",
        version=VERSION_2023,
        prompt_caching=False,
        extra_json=msgspec.json.encode(extra),
    )
    try:
        assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    finally:
        await provider.aclose()
    assert len(upstream.requests) == before + 1
    return upstream.requests[-1].json


class TestEffort:
    @pytest.mark.parametrize(
        ("model_name", "wanted", "sent", "thinking", "named"),
        [
            ("claude-opus-4-6", "xhigh", "max", "adaptive", "max instead of xhigh"),
            ("claude-opus-4-7", "xhigh", "xhigh", "adaptive", None),
            ("claude-opus-5", "max", "max", None, None),
            ("claude-opus-5", "minimal", "low", None, "low instead of minimal"),
            # Thinking is turned off where that is possible.
            ("claude-opus-5", "none", None, "disabled", None),
            ("claude-opus-4-6", "none", None, None, None),
            ("claude-sonnet-5-5", "none", None, "between_tools", None),
            ("claude-opus-5-5", "none", "low", None, "low instead of none"),
        ],
    )
    async def test_nearest_effort_of_the_model_is_used_and_named(
        self,
        upstream: AnthropicModels,
        model_name: str,
        wanted: str,
        sent: str | None,
        thinking: str | None,
        named: str | None,
    ) -> None:
        call = calling(model_name, reasoning_effort=wanted)
        request = await asked(upstream, call)
        assert request.get("output_config", {}).get("effort") == sent
        assert request.get("thinking", {}).get("type") == thinking
        assert call.ignored == ([f"reasoning_effort: {named}"] if named else [])

    async def test_model_without_words_thinks_by_a_number_of_tokens(self, upstream: AnthropicModels) -> None:
        for parameters, budget, named in (
            ({"reasoning_effort": "low"}, 1024, []),
            ({"reasoning_effort": "high"}, 4096, []),
            ({"reasoning": {"max_tokens": 2000}}, 2000, []),
            ({"reasoning": {"max_tokens": 6000}}, 4096, ["reasoning.max_tokens: 4096 instead of 6000"]),
        ):
            call = calling("claude-sonnet-4-5", **parameters)
            request = await asked(upstream, call)
            assert request["thinking"] == {"type": "enabled", "budget_tokens": budget}
            assert call.ignored == named

    async def test_number_of_tokens_is_a_word_where_the_model_has_words(self, upstream: AnthropicModels) -> None:
        call = calling("claude-opus-5-5", reasoning={"max_tokens": 8000})
        request = await asked(upstream, call)
        assert request["output_config"] == {"effort": "medium"}
        assert call.ignored == ["reasoning.max_tokens: reasoning_effort medium instead of 8000"]

    async def test_thinking_is_not_turned_on_beside_tools(self, upstream: AnthropicModels) -> None:
        """Only the route turns it on there."""
        request = await asked(upstream, calling("claude-opus-4-6", WEATHER, reasoning_effort="high"))
        assert (request["output_config"], "thinking" in request) == ({"effort": "high"}, False)


class TestThinkingOfTheRoutes:
    """NousResearch/hermes-agent#11137: a model thinks in one way, and its routes may say another."""

    @pytest.mark.parametrize(
        ("model_name", "thinking", "sent"),
        [
            ("claude-opus-4-7", {"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"}),
            ("claude-opus-5-5", {"type": "disabled"}, None),
            ("claude-sonnet-5-5", {"type": "disabled"}, {"type": "between_tools"}),
            ("claude-opus-4-6", {"type": "adaptive", "display": "omitted"}, {"type": "adaptive", "display": "omitted"}),
        ],
    )
    async def test_it_is_told_in_the_way_that_the_model_knows(
        self, upstream: AnthropicModels, model_name: str, thinking: dict[str, Any], sent: dict[str, Any] | None
    ) -> None:
        assert (await asked(upstream, calling(model_name), thinking=thinking)).get("thinking") == sent

    async def test_call_is_forced_beside_adaptive_thinking(self, upstream: AnthropicModels) -> None:
        call = calling("claude-opus-5", WEATHER, b'"required"')
        request = await asked(upstream, call, thinking={"type": "adaptive"})
        assert (request["tool_choice"], request["thinking"]) == ({"type": "any"}, {"type": "adaptive"})

    async def test_temperature_goes_to_models_that_take_it_alone(self, upstream: AnthropicModels) -> None:
        assert (await asked(upstream, calling("claude-sonnet-4-5", temperature=0.5)))["temperature"] == 0.5
        call = calling("claude-opus-5", temperature=0.5)
        assert "temperature" not in await asked(upstream, call)
        assert call.ignored == ["temperature"]


class TestForcedCalls:
    """can1357/oh-my-pi#12939, vercel/ai#21364: newer models cannot be made to call a tool."""

    async def test_model_is_asked_for_the_call_and_the_client_told(self, upstream: AnthropicModels) -> None:
        call = calling("claude-opus-5-5", WEATHER, b'"required"')
        request = await asked(upstream, call)
        assert request["tool_choice"] == {"type": "auto"}
        assert request["messages"][-1] == {
            "role": "system",
            "content": [{"type": "text", "text": "Answer by calling one of the tools."}],
        }
        assert call.ignored == ["tool_choice: auto instead of required"]
        named = calling("claude-opus-5-5", WEATHER, b'{"type":"function","function":{"name":"get_time"}}')
        request = await asked(upstream, named)
        assert request["messages"][-1]["content"][0]["text"] == "Answer by calling the tool get_time."
        assert named.ignored == ["tool_choice: auto instead of a function"]

    async def test_older_model_is_made_to_call(self, upstream: AnthropicModels) -> None:
        request = await asked(upstream, calling("claude-opus-5", WEATHER, b'"required"'))
        assert request["tool_choice"] == {"type": "any"}


class TestLastMessageOfTheAssistant:
    """smallmain/vscode-unify-chat-provider#249, vybestack/llxprt-code#3695: models from 4.6 on refuse it."""

    async def test_model_is_asked_to_go_on(self, upstream: AnthropicModels) -> None:
        said = [USER, {"role": "assistant", "content": "Once upon"}]
        request = await asked(upstream, replace(conversation(*said), model_name="claude-opus-4-6"))
        assert [message["role"] for message in request["messages"]] == ["user", "assistant", "user"]
        request = await asked(upstream, replace(conversation(*said), model_name="claude-sonnet-4-5"))
        assert request["messages"][-1]["role"] == "assistant"


class TestWhatRefusalsTeach:
    async def test_model_of_any_name_is_served_and_costs_a_refusal_once(self, upstream: AnthropicModels) -> None:
        provider = opened(
            AnthropicProvider,
            upstream.base_url,
            api_key="secret",
            version=VERSION_2023,
            prompt_caching=False,
            extra_json=b'{"thinking":{"type":"disabled"}}',
        )
        said = [USER, called(("a", "get_time", "{}")), gave("a", "noon")]
        forced = changed(conversation(*said), tool_choice_json=b'"required"')
        for times in (3, 1):
            before = len(upstream.requests)
            call = replace(forced, model_name="house-model", ignored=[])
            assert text_of(await pieces_of(provider, call)) == "Hello, world!"
            assert len(upstream.requests) - before == times
            assert call.ignored == ["tool_choice: auto instead of required"]
        assert list(provider.learned("house-model", None)) == [
            "thinks always",
            "thinking_off none",
            "forced_tools no",
        ]
        await provider.aclose()

    async def test_efforts_that_a_refusal_lists_are_those_of_the_model(self, upstream: AnthropicModels) -> None:
        provider = opened(AnthropicProvider, upstream.base_url, api_key="secret", version=VERSION_2023)
        call = calling("house-model", reasoning_effort="xhigh")
        call.abilities = Abilities(efforts=("low", "xhigh"))
        await pieces_of(provider, call)
        assert upstream.requests[-1].json["output_config"] == {"effort": "max"}
        assert call.ignored == ["reasoning_effort: max instead of xhigh"]
        await provider.aclose()
