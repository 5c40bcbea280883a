"""Functions with names that a vendor refuses: it is told others, and the client is told its own."""

import re
from typing import Any, Final

import msgspec
import pytest

from services.router.providers.base import ProviderCall, Timeouts
from services.router.providers.translation.tool_names import rename_tools
from tests.services.router.providers.asking import CALL, calls_of, changed, pieces_of
from tests.services.router.providers.vendors import VENDORS, Vendor
from tests.support.upstreams.openai import Recorded, Upstream

UNUSUAL: Final = ["mcp.files/read", "7zip", "-dash", "n" * 128, "a.b", "a:b"]
USUAL: Final = "get_weather"
TOOLS: Final = [{"type": "function", "function": {"name": name}} for name in (USUAL, *UNUSUAL)]
PAST: Final[list[dict[str, Any]]] = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
            for number, name in enumerate(UNUSUAL)
        ],
    },
    *({"role": "tool", "tool_call_id": f"call_{number}", "content": "x"} for number in range(len(UNUSUAL))),
]
# What each vendor says of a name that it refuses: OpenAI's pattern, Anthropic's and Google's.
ACCEPTED: Final = {
    "openai": r"[a-zA-Z0-9_-]{1,64}",
    "responses": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,128}",
    "bedrock": r"[a-zA-Z0-9_-]{1,128}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}",
}
_NAMES: Final = re.compile(rb'"name":"([^"]+)"')


def asking(choice: object = "auto") -> ProviderCall:
    call = changed(
        CALL,
        messages_json=msgspec.json.encode(PAST),
        tools_json=msgspec.json.encode(TOOLS),
        tool_choice_json=msgspec.json.encode(choice),
    )
    call.has_unusual_names = True
    return call


@pytest.mark.parametrize("vendor", VENDORS, ids=[vendor.name for vendor in VENDORS])
async def test_every_name_is_one_that_the_vendor_takes(vendor: Vendor) -> None:
    accepted = re.compile(ACCEPTED[vendor.name])
    async with vendor.upstream() as upstream:
        provider = vendor.connect(upstream.base_url, Timeouts())
        call = asking({"type": "function", "function": {"name": UNUSUAL[0]}})
        await pieces_of(provider, call)
        await provider.aclose()
        [request] = upstream.requests
    names = {name.decode() for name in _NAMES.findall(request.body)}
    assert USUAL in names
    assert all(map(accepted.fullmatch, names)), names
    assert call.tool_names.keys() <= names
    assert {call.tool_names.get(name, name) for name in names} == {USUAL, *UNUSUAL}


class EchoingUpstream(Upstream):
    """Calls the second function that it is offered."""

    def write_stream(self, reply: Any, recorded: Recorded) -> list[bytes]:
        name = recorded.json["tools"][1]["function"]["name"]
        reply.contents = []
        reply.tool_calls = [{"index": 0, "id": "call_a", "function": {"name": name, "arguments": "{}"}}]
        return super().write_stream(reply, recorded)


async def test_client_is_told_its_own_name() -> None:
    async with EchoingUpstream() as upstream:
        provider = VENDORS[0].connect(upstream.base_url, Timeouts())
        assert calls_of(await pieces_of(provider, asking())) == [(UNUSUAL[0], {})]
        await provider.aclose()


def test_name_is_the_same_in_every_turn_and_no_two_are_one() -> None:
    accepted = re.compile(ACCEPTED["openai"])
    first, second = asking(), asking()
    assert rename_tools(first, accepted) == rename_tools(second, accepted)
    assert first.tools.json == second.tools.json
    assert len(first.tools.names or ()) == len(TOOLS)


def test_names_that_are_taken_stay() -> None:
    call = asking()
    tools, messages = call.tools, call.messages
    assert rename_tools(call, re.compile(r".*")) == {}
    assert (call.tools, call.messages) == (tools, messages)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_choice_among_some_of_them_has_the_new_names(mode: str) -> None:
    allowed = {"mode": mode, "tools": [TOOLS[1], TOOLS[0]]}
    call = asking({"type": "allowed_tools", "allowed_tools": allowed})
    names = {name: renamed for renamed, name in rename_tools(call, re.compile(ACCEPTED["openai"])).items()}
    assert call.tools.parsed is not None
    assert {function.name for function in call.tools.parsed.functions} == {names[UNUSUAL[0]], USUAL}
