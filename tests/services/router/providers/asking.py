"""A call and what came of it, for the tests of all providers."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import msgspec
import pytest

from services.router.answers.toolcalls import ToolCalls
from services.router.providers.base import (
    Piece,
    Provider,
    ProviderCall,
    ProviderError,
    ProviderRoute,
    Timeouts,
)
from services.router.providers.http.http_provider import HttpProvider
from services.router.schema.parameters import Parameters
from services.router.schema.tools import Tools
from tests.services.router.schema.reading import parsed

ProviderT = TypeVar("ProviderT", bound=HttpProvider)
USUAL = Timeouts()


def opened(
    kind: Callable[..., ProviderT],
    base_url: str = "",
    timeouts: Timeouts = USUAL,
    **of: Any,
) -> ProviderT:
    """Returns a provider of this kind at an address; `of` are other fields of its route."""
    options = {name: of.pop(name) for name in ("tls", "socket") if name in of}
    route = ProviderRoute("host", "any", base_url, **({"no_store": False} | of))
    return kind(route, timeouts, **options)


def make_call(
    model_name: str,
    messages_json: bytes,
    tools_json: bytes = b"",
    tool_choice_json: bytes = b"",
    parameters_json: bytes = b"",
    *,
    max_tokens: int,
    stream: bool = True,
) -> ProviderCall:
    tools = Tools(tools_json, tool_choice_json)
    return ProviderCall(model_name, parsed(messages_json), tools, Parameters(parameters_json), max_tokens, stream)


def changed(call: ProviderCall, **fields: Any) -> ProviderCall:
    """Returns the call with other JSON in some of its fields."""
    if "messages_json" in fields:
        fields["messages"] = parsed(fields.pop("messages_json"))
    if "parameters_json" in fields:
        fields["parameters"] = Parameters(fields.pop("parameters_json"))
    tools_json = fields.pop("tools_json", call.tools.json)
    tool_choice_json = fields.pop("tool_choice_json", call.tools.tool_choice_json)
    return replace(call, tools=Tools(tools_json, tool_choice_json), ignored=[], **fields)


CALL = make_call("vendor-model", b'[{"role":"user", "content":"Hi"}]', max_tokens=50)
WHOLE_CALL = replace(CALL, stream=False)
both_ways = pytest.mark.parametrize("call", [CALL, WHOLE_CALL], ids=["stream", "whole"])

WEATHER = (
    b'[{"type":"function","function":{"name":"get_weather","description":"The weather.",'
    b'"parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},'
    b'{"type":"function","function":{"name":"get_time"}}]'
)


def conversation(*messages: dict[str, Any]) -> ProviderCall:
    return changed(CALL, messages_json=msgspec.json.encode(messages), tools_json=WEATHER)


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
