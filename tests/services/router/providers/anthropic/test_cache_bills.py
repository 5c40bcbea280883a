"""What whole conversations cost at a server that bills by prefix, beside the same with LiteLLM's marks, at the ends of
the system prompt and of the last message.

The most for each kind of conversation is the better of two figures that were measured of it earlier: of this router,
which marked no system prompt then, and of LiteLLM."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from tests.services.router.providers.asking import conversation, opened, pieces_of
from tests.services.router.providers.past import called, gave
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.prefix_billing import AnthropicCache

# In per cent of ordinary input.
PRICES: Final = {"input": 100, "cached_input": 10, "cache_write": 125, "cache_write_1h": 200}
WITH_SYSTEM_INSIDE: Final = "claude-opus-5"
WITHOUT: Final = "claude-opus-4-5"
MARK: Final = {"type": "ephemeral"}

Messages = list[dict[str, Any]]
Trace = tuple[Callable[[], list[Messages]], float]


def words(tokens: int, about: str) -> str:
    """About as many tokens, by the server's count."""
    return f"{about}: " + "word" * tokens


def system(tokens: int, about: str = "Rules") -> dict[str, Any]:
    return {"role": "system", "content": words(tokens, about)}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


CHARACTER: Final = system(50, "Character")


def agent(turns: int, calls: Callable[[int], int] = lambda turn: 2, about: str = "a") -> Iterator[Messages]:
    """The requests of an agent that calls functions in each turn, each with all that was said before."""
    said = [CHARACTER, system(2000), user(words(200, f"Task {about}"))]
    for turn in range(turns):
        yield [*said]
        ids = [f"{about}{turn}_{number}" for number in range(calls(turn))]
        said.append(called(*((call_id, "get_time", "{}") for call_id in ids), content=f"Step {turn}."))
        said += [gave(call_id, words(80, call_id)) for call_id in ids]


def in_turns(*conversations: Iterator[Messages]) -> list[Messages]:
    return [messages for turn in zip(*conversations, strict=True) for messages in turn]


def edited() -> list[Messages]:
    """An agent whose client shortens an earlier result, again and again."""
    requests = list(agent(20))
    for at, place in ((8, 12), (14, 20), (17, 30)):
        for messages in requests[at:]:
            messages[place] = {**messages[place], "content": f"Shortened {place}."}
    return requests


def single_questions() -> list[Messages]:
    return [[CHARACTER, system(1400), user(words(60, f"Question {number}"))] for number in range(50)]


def reminded() -> list[Messages]:
    """A conversation whose client adds a system message before each question."""
    requests, said = [], [CHARACTER, system(1400)]
    for turn in range(20):
        said += [user(words(100, f"Question {turn}"))]
        said[-1:] = [system(20, f"Reminder {turn}"), *said[-1:]] if turn else said[-1:]
        requests.append([*said])
        said.append({"role": "assistant", "content": words(200, f"Answer {turn}")})
    return requests


TRACES: Final[dict[str, Trace]] = {
    "an agent": (lambda: list(agent(20)), 19.5),
    "many calls at once": (lambda: list(agent(17, lambda turn: 14 + turn)), 27.3),
    "five agents at once": (lambda: in_turns(*(agent(8, about=name) for name in "abcde")), 26.8),
    "an earlier turn is edited": (edited, 30.3),
    "two accounts with one system prompt": (lambda: in_turns(agent(10, about="a"), agent(10, about="b")), 25.5),
    "single questions": (single_questions, 19.4),
    "a system message in each turn": (reminded, 93.7),
}


async def bill_of(requests: list[Messages], model: str = WITH_SYSTEM_INSIDE) -> float:
    """Returns what the requests cost, in per cent of what they would without a cache."""
    return cost_of(await sent(requests, model))


def cost_of(requests: list[Any]) -> float:
    cache, cost, tokens = AnthropicCache(), 0, 0
    for request in requests:
        counts = cache.take(request)
        cost += sum(PRICES[kind] * count for kind, count in counts.items())
        tokens += sum(counts.values())
    return cost / tokens


async def sent(requests: list[Messages], model: str, **route: Any) -> list[Any]:
    """Returns the requests as a server that keeps to Anthropic's rules gets them."""
    async with AnthropicUpstream() as upstream:
        provider = opened(AnthropicProvider, upstream.base_url, api_key="secret", version=VERSION_2026, **route)
        try:
            for messages in requests:
                call = conversation(*messages)
                call.model_name = model
                await pieces_of(provider, call)
        finally:
            await provider.aclose()
        return [recorded.json for recorded in upstream.requests]


async def bill_of_litellm(requests: list[Messages]) -> float:
    unmarked = await sent(requests, WITHOUT, prompt_caching=False)
    for request in unmarked:
        request["system"][-1]["cache_control"] = request["messages"][-1]["content"][-1]["cache_control"] = MARK
    return cost_of(unmarked)


@pytest.mark.parametrize("trace", TRACES)
async def test_conversation_costs_no_more_than_with_other_marks(trace: str) -> None:
    write, most = TRACES[trace]
    requests = write()
    bill = await bill_of(requests)
    assert bill <= most
    assert bill <= await bill_of_litellm(requests)
    assert await bill_of(requests, WITHOUT) <= 100
