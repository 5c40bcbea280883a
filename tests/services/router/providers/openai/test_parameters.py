"""Parameters that OpenAI's models refuse, at a server that refuses them in their vendor's words."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.abilities import Abilities
from services.router.providers.base import Failure, ProviderCall
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import CALL, WEATHER, changed, failure_of, opened, pieces_of, text_of
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.upstreams.openai_models import OpenAIModels, refusal


@pytest.fixture
async def upstream() -> AsyncIterator[OpenAIModels]:
    async with OpenAIModels() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: OpenAIModels) -> AsyncIterator[OpenAIProvider]:
    provider = opened(OpenAIProvider, upstream.base_url, api_key="secret")
    yield provider
    await provider.aclose()


def calling(model_name: str, parameters_json: bytes = b"", *, has_tools: bool = False) -> ProviderCall:
    tools_json = WEATHER if has_tools else b""
    return replace(changed(CALL, parameters_json=parameters_json, tools_json=tools_json), model_name=model_name)


async def served(provider: OpenAIProvider, upstream: Upstream, call: ProviderCall) -> tuple[int, Any]:
    """Returns how often the model was asked, and what it was asked last."""
    before = len(upstream.requests)
    assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    return len(upstream.requests) - before, upstream.requests[-1].json


class TestModelsThatAreKnownByName:
    async def test_limit_has_the_name_that_the_model_takes(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        for model_name, field in (("gpt-5-mini", "max_completion_tokens"), ("gpt-4o", "max_tokens")):
            times, request = await served(provider, upstream, calling(model_name))
            assert (times, request[field]) == (1, 50)

    @pytest.mark.parametrize(
        ("model_name", "wanted", "used"),
        [
            ("gpt-5-mini", "none", "minimal"),
            ("gpt-5-mini", "xhigh", "high"),
            ("gpt-5.1", "minimal", "low"),
            ("gpt-5.6-luna", "minimal", "low"),
            ("gpt-6.1-sol", "none", "low"),
        ],
    )
    async def test_nearest_effort_is_used_and_named(
        self, provider: OpenAIProvider, upstream: OpenAIModels, model_name: str, wanted: str, used: str
    ) -> None:
        call = calling(model_name, b'{"seed":7,"reasoning_effort":"%b"}' % wanted.encode())
        times, request = await served(provider, upstream, call)
        assert (times, request["reasoning_effort"], request["seed"]) == (1, used, 7)
        assert call.ignored == [f"reasoning_effort: {used} instead of {wanted}"]

    async def test_effort_that_the_model_takes_is_not_named(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        call = calling("gpt-5.6-luna", b'{"reasoning_effort":"max"}')
        _, request = await served(provider, upstream, call)
        assert request["reasoning_effort"] == "max"
        assert not call.ignored

    async def test_temperature_is_left_out_while_the_model_reasons(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        call = calling("gpt-5.1", b'{"temperature":0.2,"reasoning_effort":"high"}')
        times, request = await served(provider, upstream, call)
        assert (times, "temperature" in request, call.ignored) == (1, False, ["temperature"])
        call = calling("gpt-5.1", b'{"temperature":0.2,"reasoning_effort":"none"}')
        _, request = await served(provider, upstream, call)
        assert (request["temperature"], call.ignored) == (0.2, [])


class TestToolsBesideReasoning:
    """pipecat-ai/pipecat#4043, BerriAI/litellm#34569, itzcrazykns/vane#1173."""

    async def test_model_that_takes_tools_only_without_reasoning_is_told_so_and_the_client_too(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        call = calling("gpt-5.6-luna", b'{"reasoning_effort":"high"}', has_tools=True)
        times, request = await served(provider, upstream, call)
        assert (times, request["reasoning_effort"]) == (1, "none")
        assert call.ignored == ["reasoning_effort: none instead of high"]
        call = calling("gpt-6-sol", has_tools=True)
        times, request = await served(provider, upstream, call)
        assert (times, request["reasoning_effort"], call.ignored) == (
            1,
            "none",
            ["reasoning_effort: none beside tools"],
        )

    async def test_model_reasons_where_there_are_no_tools(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        _, request = await served(provider, upstream, calling("gpt-5.6-luna", b'{"reasoning_effort":"high"}'))
        assert request["reasoning_effort"] == "high"


class TestWhatRefusalsTeach:
    async def test_deployment_of_any_name_costs_a_refusal_once(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        """Azure's deployments are called as their owners like: decolua/9router#560."""
        fields = b'{"temperature":0.16,"reasoning_effort":"minimal"}'
        call = calling("our-deployment", fields)
        times, request = await served(provider, upstream, call)
        assert times == 4
        assert (request["max_completion_tokens"], request["reasoning_effort"]) == (50, "low")
        assert call.ignored == ["temperature", "reasoning_effort: low instead of minimal"]
        assert list(provider.learned("our-deployment", None)) == [
            "efforts none/low/medium/high/xhigh/max",
            "output_field max_completion_tokens",
            "refused temperature",
        ]
        again = calling("our-deployment", fields)
        times, request = await served(provider, upstream, again)
        assert (times, request["reasoning_effort"], sorted(again.ignored)) == (1, "low", sorted(call.ignored))
        # Others are not concerned.
        assert provider.learned("gpt-4o", None) == []
        times, request = await served(provider, upstream, calling("gpt-4o", fields))
        assert (times, request["temperature"], request["max_tokens"]) == (1, 0.16, 50)

    async def test_tools_go_without_reasoning_after_a_refusal(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        await served(provider, upstream, calling("our-deployment", has_tools=True))
        times, request = await served(provider, upstream, calling("our-deployment", has_tools=True))
        assert (times, request["reasoning_effort"]) == (1, "none")
        times, request = await served(provider, upstream, calling("our-deployment"))
        assert (times, "reasoning_effort" in request) == (1, False)

    async def test_refusal_that_quotes_a_client_teaches_nothing(self) -> None:
        quoted = (
            "Invalid tool: Unsupported parameter: 'max_tokens' is not supported with this model. Use"
            " 'max_completion_tokens' instead."
        )
        async with Upstream(refusal(quoted, "tools", None)) as upstream:
            provider = opened(OpenAIProvider, upstream.base_url)
            failure = await failure_of(provider)
            assert (failure.failure, len(upstream.requests)) == (Failure.REFUSED, 1)
            assert provider.learned(CALL.model_name, None) == []
            await provider.aclose()

    async def test_model_that_refuses_whatever_it_gets_is_asked_four_times_at_most(self) -> None:
        names = ("temperature", "top_p", "seed", "verbosity", "logit_bias")
        async with Upstream() as upstream:
            upstream.replies.extend(
                refusal(f"Unsupported parameter: '{name}' is not supported with this model.", name, "x")
                for name in names
            )
            provider = opened(OpenAIProvider, upstream.base_url)
            assert (await failure_of(provider)).param == "verbosity"
            assert len(upstream.requests) == 4
            await provider.aclose()

    async def test_routes_say_more_than_the_name(self, provider: OpenAIProvider, upstream: OpenAIModels) -> None:
        abilities = Abilities(efforts=("low",), output_field="max_completion_tokens")
        call = replace(calling("our-deployment", b'{"reasoning_effort":"max"}'), abilities=abilities)
        times, request = await served(provider, upstream, call)
        assert (times, request["reasoning_effort"]) == (1, "low")


class TestReasoningAsANumberOfTokens:
    async def test_server_that_takes_words_gets_the_nearest_one(
        self, provider: OpenAIProvider, upstream: OpenAIModels
    ) -> None:
        for tokens, effort in ((500, "minimal"), (1000, "low"), (8000, "medium"), (20_000, "high"), (90_000, "high")):
            call = calling("gpt-5-mini", b'{"reasoning":{"max_tokens":%d}}' % tokens)
            _, request = await served(provider, upstream, call)
            assert (request["reasoning_effort"], "reasoning" in request) == (effort, False)
            assert call.ignored == [f"reasoning.max_tokens: reasoning_effort {effort} instead of {tokens}"]

    async def test_server_of_which_nothing_is_known_gets_a_word_too(self) -> None:
        async with Upstream(Reply()) as upstream:
            provider = opened(OpenAIProvider, upstream.base_url)
            await pieces_of(provider, calling("vendor-model", b'{"reasoning":{"max_tokens":1000},"seed":1}'))
            request = upstream.requests[-1].json
            assert (request["reasoning_effort"], request["seed"], "reasoning" in request) == ("low", 1, False)
            await provider.aclose()


class TestParametersOfOpenModels:
    @pytest.mark.parametrize(("takes", "ignored"), [(True, []), (False, ["min_p", "top_k"])])
    async def test_they_go_to_servers_that_take_them_alone(self, takes: bool, ignored: list[str]) -> None:
        async with Upstream() as upstream:
            provider = opened(OpenAIProvider, upstream.base_url, open_parameters=takes)
            call = calling("vendor-model", b'{"top_k":5,"min_p":0.1,"seed":7}')
            _, request = await served(provider, upstream, call)
            assert {name: request.get(name) for name in ("top_k", "min_p", "seed")} == {
                "top_k": 5 if takes else None,
                "min_p": 0.1 if takes else None,
                "seed": 7,
            }
            assert call.ignored == ignored
            await provider.aclose()


class TestChoiceAmongSomeOfTheTools:
    async def test_it_goes_to_servers_that_know_it_and_the_tools_alone_to_others(self) -> None:
        allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        call = changed(CALL, tools_json=WEATHER, tool_choice_json=msgspec.json.encode(choice))
        async with Upstream() as upstream:
            for takes in (True, False):
                provider = opened(OpenAIProvider, upstream.base_url, allowed_tools=takes)
                _, request = await served(provider, upstream, call)
                names = [tool["function"]["name"] for tool in request["tools"]]
                assert names == (["get_weather", "get_time"] if takes else ["get_time"])
                assert request["tool_choice"] == (choice if takes else "required")
                await provider.aclose()
