"""Agents beside the relay: sessions whose prompts grow with each turn, and single big prompts.

A *known* prompt differs from the one before by its last message only; of a *new* one no message was seen before.
"""

from collections.abc import Iterator
from typing import Final

from bench.chats import Case
from bench.conversations import Conversation
from bench.measurements import beside_relay
from bench.report import Progress, Row

TURNS: Final = 20
_SESSION: Final = Conversation(tuple(30_000 + 270_000 * turn // (TURNS - 1) for turn in range(TURNS)))
ONE_AGENT, TEN_AGENTS = (
    Case(name, in_flight=agents, chunks=20, pause_us=10_000, conversation=_SESSION, sessions=1)
    for name, agents in (("one agent", 1), ("10 agents", 10))
)

# The size of the messages; the first, with the tools, is a request of 21 KB.
SIZES_BYTES: Final = {"21 KB": 9_000, "100 KB": 100_000, "300 KB": 300_000, "1 MB": 1_000_000}
# No agent sends its next turn in the moment of an answer. Without a rest the caches of the processors are warm, and a
# gateway of one process costs half of what it does for an agent.
REST_US: Final = 10_000
KNOWN, NEW = (
    {
        size: Case(
            f"{size}, {what}",
            in_flight=1,
            conversation=Conversation((size_bytes,), is_known=what == "known"),
            rest_us=REST_US,
        )
        for size, size_bytes in SIZES_BYTES.items()
    }
    for what in ("known", "new")
)

# LiteLLM publishes 3,000 requests a second on 132 processors, by 3,000 users with one a second each, with 75,000 tokens
# on average; these are as many for each of two processors. See https://docs.litellm.ai/docs/benchmarks.
STEADY: Final = Case(
    "45 a second of 75,000 tokens",
    in_flight=45,
    chunks=16,
    conversation=Conversation((300_000,)),
    every_us=1_000_000,
)

CASES: Final = (ONE_AGENT, TEN_AGENTS, *KNOWN.values(), *NEW.values(), STEADY)


def measure(progress: Progress, seconds: float, rounds: int) -> Iterator[Row]:
    return beside_relay.measure(progress, seconds, rounds, cases=CASES)
