"""A call and what came of it, for the tests of all providers."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.answers.toolcalls import ToolCalls
from services.router.providers.base import Piece, Provider, ProviderCall, ProviderError

CALL = ProviderCall(
    model_name="vendor-model",
    messages_json=b'[{"role":"user", "content":"Hi"}]',
    tools_json=b"",
    tool_choice_json=b"",
    parameters_json=b"",
    max_tokens=50,
    stream=True,
)
WHOLE_CALL = replace(CALL, stream=False)
both_ways = pytest.mark.parametrize("call", [CALL, WHOLE_CALL], ids=["stream", "whole"])

WEATHER = (
    b'[{"type":"function","function":{"name":"get_weather","description":"The weather.",'
    b'"parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},'
    b'{"type":"function","function":{"name":"get_time"}}]'
)


def conversation(*messages: dict[str, Any]) -> ProviderCall:
    return replace(CALL, messages_json=msgspec.json.encode(messages), tools_json=WEATHER)


async def pieces_of(provider: Provider, call: ProviderCall = CALL) -> list[Piece]:
    async with aclosing(provider.answer(call)) as pieces:
        return [piece async for piece in pieces]


async def failure_of(provider: Provider, call: ProviderCall = CALL) -> ProviderError:
    async with asyncio.timeout(60):
        with pytest.raises(ProviderError) as failure:
            await pieces_of(provider, call)
    return failure.value


async def broken_off(provider: Provider, call: ProviderCall = CALL) -> tuple[list[Piece], ProviderError]:
    """Returns pieces of a broken answer, and its error."""
    seen: list[Piece] = []

    async def read() -> None:
        async for piece in provider.answer(call):
            seen.append(piece)  # noqa: PERF401

    with pytest.raises(ProviderError) as failure:
        await read()
    return seen, failure.value


def text_of(pieces: list[Piece]) -> str:
    return "".join(content for piece in pieces for content in piece.contents)


def hidden_of(pieces: list[Piece]) -> str:
    return "".join(piece.hidden for piece in pieces)


def finish_of(pieces: list[Piece]) -> str | None:
    """Why the answer ended; and that it did, once, with the last of its pieces."""
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    [reason] = [piece.finish_reason for piece in pieces if piece.finish_reason]
    return reason


def calls_of(pieces: list[Piece]) -> list[tuple[str, dict[str, object]]]:
    """Name and arguments of each call, put together by the rules of `toolcalls.py`."""
    calls = ToolCalls()
    named: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for piece in pieces:
        for fragment in piece.tool_calls:
            delta = calls.add_fragment(fragment)
            if delta is not None:
                named[delta.index] = named.get(delta.index, "") + delta.name
                arguments[delta.index] = arguments.get(delta.index, "") + delta.arguments
    return [(name, msgspec.json.decode(arguments[index])) for index, name in named.items()]
