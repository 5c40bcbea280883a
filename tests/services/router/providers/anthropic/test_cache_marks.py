"""What a request marks for Anthropic's prompt cache, as a server that keeps to its rules gets it."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import CannotDo, ProviderCall, Timeouts
from tests.services.router.providers.asking import changed, conversation, opened, pieces_of
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.anthropic import AnthropicUpstream

SYSTEM = {"role": "system", "content": "Be brief."}
EPHEMERAL = {"type": "ephemeral"}
KEPT_LONG = {"type": "ephemeral", "ttl": "1h"}
# The ends of the tools and of the system prompt, which other conversations may have, too.
SHARED = {"get_time": EPHEMERAL, "Be brief.": EPHEMERAL}


async def marks(upstream: AnthropicUpstream, call: ProviderCall, *, prompt_caching: bool = True) -> dict[str, Any]:
    """Returns the marks that upstream got, by what they are on."""
    provider = opened(
        AnthropicProvider,
        upstream.base_url,
        Timeouts(),
        api_key="secret",
        version=VERSION_2026,
        prompt_caching=prompt_caching,
    )
    try:
        await pieces_of(provider, call)
    finally:
        await provider.aclose()
    request = upstream.requests[-1].json
    blocks = [(tool["name"], tool) for tool in request["tools"]]
    blocks += [(block["text"], block) for block in request["system"]]
    for message in request["messages"]:
        for block in message["content"]:
            blocks.append((block.get("text") or block.get("content") or block["name"], block))
    return {what: block["cache_control"] for what, block in blocks if "cache_control" in block}


def marked(role: str, *texts: str, mark: Any = EPHEMERAL, **fields: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text, "cache_control": mark} for text in texts]
    return {"role": role, "content": parts, **fields}


async def test_ends_of_the_tools_of_the_system_prompt_and_of_the_conversation_are_marked(
    upstream: AnthropicUpstream,
) -> None:
    assert await marks(upstream, conversation(SYSTEM, USER)) == SHARED | {"Hi": EPHEMERAL}
    agent = (SYSTEM, USER, called(("a", "get_time", "{}"), ("b", "get_time", "{}")), gave("a", "1"), gave("b", "noon"))
    assert await marks(upstream, conversation(*agent)) == SHARED | {"noon": EPHEMERAL}
    begun = (SYSTEM, USER, {"role": "assistant", "content": "Well,"})
    assert await marks(upstream, conversation(*begun)) == SHARED | {"Well,": EPHEMERAL}


async def test_what_is_added_for_one_turn_stands_behind_the_mark(upstream: AnthropicUpstream) -> None:
    call = conversation(SYSTEM, {"role": "user", "content": "What is it?"})
    grounded = replace(call, messages=call.messages.add_context("A passage."))
    assert await marks(upstream, grounded) == SHARED | {"What is it?": EPHEMERAL}
    [message] = upstream.requests[-1].json["messages"]
    assert [block["text"] for block in message["content"]] == ["What is it?", "\n\nA passage."]
    [system] = upstream.requests[-1].json["system"]
    assert system["text"] == "Be brief."
    # So does a search, with its calls and results.
    searched = conversation(called(("a", "get_time", "{}")), gave("a", "noon")).messages.parsed
    after = replace(call, messages=grounded.messages.append(searched))
    assert await marks(upstream, after) == SHARED | {"What is it?": EPHEMERAL}


async def test_latest_turn_that_is_not_looked_back_at_is_marked_too(upstream: AnthropicUpstream) -> None:
    def turn_of(calls: int) -> ProviderCall:
        ids = [f"c{number}" for number in range(calls)]
        results = [gave(call_id, call_id) for call_id in ids]
        return conversation(SYSTEM, USER, called(*((call_id, "get_time", "{}") for call_id in ids)), *results)

    # From the end on, the block of the user's message is the twentieth to be looked at, and then one too many.
    assert await marks(upstream, turn_of(9)) == SHARED | {"c8": EPHEMERAL}
    assert await marks(upstream, turn_of(10)) == SHARED | {"Hi": EPHEMERAL, "c9": EPHEMERAL}
    # Of a long conversation it is an end that is found again if a later turn is edited.
    said = [
        part
        for number in range(15)
        for part in (called((f"c{number}", "get_time", "{}")), gave(f"c{number}", f"r{number}"))
    ]
    assert await marks(upstream, conversation(SYSTEM, USER, *said)) == SHARED | {"r4": EPHEMERAL, "r14": EPHEMERAL}


async def test_marks_of_the_client_are_kept_and_come_first(upstream: AnthropicUpstream) -> None:
    tools = [
        {"type": "function", "function": {"name": "get_weather"}, "cache_control": KEPT_LONG},
        {"type": "function", "function": {"name": "get_time", "cache_control": None}, "cache_control": None},
    ]
    said = [
        marked("system", "Be brief."),
        USER,
        called(("a", "get_time", "{}")),
        marked("tool", "noon", tool_call_id="a"),
        {"role": "user", "content": "And now?"},
    ]
    call = changed(conversation(*said), tools_json=msgspec.json.encode(tools))
    theirs = {"get_weather": KEPT_LONG, "Be brief.": EPHEMERAL, "noon": EPHEMERAL}
    assert await marks(upstream, call) == theirs | {"And now?": EPHEMERAL}
    assert await marks(upstream, call, prompt_caching=False) == theirs
    # Four are all that there may be.
    said[1] = marked("user", "Hi")
    call = changed(conversation(*said), tools_json=msgspec.json.encode(tools))
    assert await marks(upstream, call) == theirs | {"Hi": EPHEMERAL}
    said[4] = marked("user", "And now?")
    with pytest.raises(CannotDo, match="at most 4 cache_control") as refusal:
        await marks(upstream, changed(conversation(*said), tools_json=msgspec.json.encode(tools)))
    assert refusal.value.param == "messages"


async def test_our_marks_are_kept_as_long_as_those_of_the_client(upstream: AnthropicUpstream) -> None:
    """The API refuses what is kept for an hour behind what is kept for less."""
    call = conversation(SYSTEM, marked("user", "Hi", mark=KEPT_LONG))
    assert await marks(upstream, call) == {"get_time": KEPT_LONG, "Be brief.": KEPT_LONG, "Hi": KEPT_LONG}
    call = conversation(marked("system", "Be brief.", mark=KEPT_LONG), USER)
    assert await marks(upstream, call) == {"get_time": KEPT_LONG, "Be brief.": KEPT_LONG, "Hi": KEPT_LONG}
    call = conversation(
        marked("system", "Be brief.", mark=KEPT_LONG), marked("user", "Hi"), USER | {"content": "Well?"}
    )
    kept = {"get_time": KEPT_LONG, "Be brief.": KEPT_LONG, "Hi": EPHEMERAL, "Well?": EPHEMERAL}
    assert await marks(upstream, call) == kept


async def test_tools_of_a_request_stay_unmarked_for_the_next_model(upstream: AnthropicUpstream) -> None:
    call = conversation(SYSTEM, USER)
    await marks(upstream, call)
    assert await marks(upstream, call, prompt_caching=False) == {}
