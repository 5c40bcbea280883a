"""Prompts of many thousand messages, parts or calls hold no chat up, whatever they are converted to."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.router.providers.anthropic.platforms import VERSION_2023
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import Provider, ProviderCall, ProviderError, Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.local.provider import LocalProvider
from services.router.providers.openai.provider import OpenAIProvider
from services.router.providers.translation.conversion import merged
from services.router.schema.messages import read_messages
from tests.services.router.providers.asking import make_call, opened
from tests.services.router.providers.past import USER, called, gave
from tests.support.loop_holds import longest_hold_s

MANY = 8_000
# Many times as long as it takes.
LONGEST_HOLD_S = 0.5

# Nothing listens there: the conversion comes first.
NOWHERE = "http://127.0.0.1:1"
TIMEOUTS = Timeouts(connect_s=1.0)

PROVIDERS: dict[str, Callable[[], Provider]] = {
    "anthropic": lambda: opened(AnthropicProvider, NOWHERE, TIMEOUTS, api_key="k", version=VERSION_2023),
    "gemini": lambda: opened(GeminiProvider, NOWHERE, TIMEOUTS, api_key="k", version="v1beta"),
    "short_call_ids": lambda: opened(OpenAIProvider, NOWHERE, TIMEOUTS, short_call_ids=True),
    "string_content": lambda: opened(OpenAIProvider, NOWHERE, TIMEOUTS, string_content=True),
    "local": lambda: opened(LocalProvider, timeouts=TIMEOUTS, socket=Path("/nowhere/socket")),
}

_IDS = [f"call_{number}" for number in range(MANY // 2)]
PROMPTS: dict[str, list[dict[str, Any]]] = {
    "messages": [USER, {"role": "assistant", "content": "Hi"}] * (MANY // 2),
    "messages of one": [USER] * MANY,
    "system messages": [{"role": "system", "content": "Hi"}] * (MANY - 1) + [USER],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Hi"}] * (MANY - 1)}],
    "calls": [USER, called(*((call_id, "f", "{}") for call_id in _IDS)), *(gave(call_id, "x") for call_id in _IDS)],
}


async def ask(provider: Provider, call: ProviderCall) -> None:
    with pytest.raises(ProviderError):
        await anext(provider.answer(call))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One for each conversion that ran in a thread."""
    seen: list[int] = []
    in_thread = asyncio.to_thread

    async def noted(work: Any, *arguments: Any) -> Any:
        seen.append(1)
        return await in_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    return seen


@pytest.mark.parametrize(
    ("provider", "prompt"),
    [
        *product(("anthropic", "gemini"), PROMPTS),
        ("string_content", "parts"),
        ("short_call_ids", "calls"),
        ("local", "calls"),
    ],
)
async def test_large_prompts_are_converted_in_a_thread(provider: str, prompt: str, threads: list[int]) -> None:
    call = make_call("model", msgspec.json.encode(PROMPTS[prompt]), max_tokens=10)
    await ask(PROVIDERS[provider](), call)
    assert threads


@pytest.mark.parametrize("provider", ["anthropic", "gemini"])
async def test_many_tools_are_converted_in_a_thread(provider: str, threads: list[int]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    tools_json = msgspec.json.encode([tool] * MANY)
    call = make_call("model", msgspec.json.encode([USER]), tools_json, max_tokens=10)
    await ask(PROVIDERS[provider](), call)
    assert threads


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_short_prompts_never_wait_for_a_thread(provider: str, threads: list[int]) -> None:
    await ask(PROVIDERS[provider](), make_call("model", msgspec.json.encode([USER] * 200), max_tokens=10))
    assert not threads


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_few_messages_with_long_texts_never_wait_for_a_thread(provider: str, threads: list[int]) -> None:
    turn = {"role": "user", "content": "x" * 5_000}
    messages_json = msgspec.json.encode([turn] * 60)
    call = make_call("model", messages_json, max_tokens=10)
    await ask(PROVIDERS[provider](), replace(call, messages=await read_messages(messages_json)))
    assert not threads


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_largest_prompt_holds_no_chat_up(provider: str) -> None:
    call = make_call("model", msgspec.json.encode(PROMPTS["calls"] * 2), max_tokens=10)
    assert await longest_hold_s(ask(PROVIDERS[provider](), call)) < LONGEST_HOLD_S


def test_tables_are_put_together_and_what_is_in_both_is_the_added_one() -> None:
    ours = {"a": 1, "table": {"kept": 1, "changed": 1, "deep": {"x": 1}}}
    added = {"table": {"changed": 2, "deep": {"y": 2}}, "b": [2]}
    assert merged(ours, added) == {
        "a": 1,
        "b": [2],
        "table": {"kept": 1, "changed": 2, "deep": {"x": 1, "y": 2}},
    }
    assert ours["table"] == {"kept": 1, "changed": 1, "deep": {"x": 1}}
