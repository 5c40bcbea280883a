"""Measures refusals and output in two situations: a provider without any limit whose answers begin late, and
one with few places that is asked for three times as much as it can bear."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import aiohttp

from edge.access.saturation import LATENESS_TOLERATED_S
from tests.campaigns.overload.clients import Clients, Tally, all_of
from tests.campaigns.overload.provider import Provider
from tests.support.service import Service

ROUTES: Final = """
[providers.p]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.m]
provider = "p"
name = "m"
context_tokens = 100000
max_output_tokens = 1000
EXTRA
[classes]
mezzo = {{ models = ["m"] }}
forte = {{ models = ["m"] }}
fortissimo = {{ models = ["m"] }}
"""
# Saturation as it is set by default; rates are not what is looked at here.
SETTINGS: Final = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "LEGATO_EDGE_QUEUEING_S": str(LATENESS_TOLERATED_S),
}
KEYS: Final = 8

RATE_PER_S: Final = 10.0
USUAL_S: Final = 0.3
THINKS_S: Final = (3.0, 12.0)
BURST: Final = 40
BURST_S: Final = 1.5
LONG_STREAMS: Final = 8

# A customer whose prompts the provider refuses, and how many streams of others come at once after one such refusal.
REFUSED_WORDS: Final = "too expensive"
REFUSED_PER_S: Final = 5.0
STREAMS: Final = 100

PLACES: Final = 16
MULTIPLE: Final = 3.0
LEAST_GOODPUT: Final = 0.95
# An answer takes less than a second; a client that waits longer than this for one has waited without bound.
LONGEST_P99_S: Final = 8.0
WAYS: Final = ("429", "429 with a time", "gauge", "concurrency")

Say = Callable[[str], None]


@dataclass
class Overloaded:
    way: str
    peak_per_s: float
    offered_per_s: float
    goodput_per_s: float
    tally: Tally

    @property
    def violations(self) -> list[str]:
        found = []
        if self.goodput_per_s < LEAST_GOODPUT * self.peak_per_s:
            found.append(f"{self.way}: goodput is {self.goodput_per_s / self.peak_per_s:.0%} of the peak")
        if self.tally.p99_s > LONGEST_P99_S:
            found.append(f"{self.way}: p99 is {self.tally.p99_s:.1f} s")
        if self.tally.failed:
            found.append(f"{self.way}: {self.tally.failed} chats failed")
        return found

    def __str__(self) -> str:
        return (
            f"{self.way:16} peak {self.peak_per_s:5.1f}/s  offered {self.offered_per_s:5.1f}/s"
            f"  goodput {self.goodput_per_s:5.1f}/s ({self.goodput_per_s / self.peak_per_s:4.0%})"
            f"  refused {self.tally.refused}  failed {self.tally.failed}  p99 {self.tally.p99_s:.2f} s"
        )


@asynccontextmanager
async def served(provider: Provider, extra: str = "") -> AsyncIterator[Clients]:
    """Runs the service."""
    service = Service(provider, SETTINGS, routes=ROUTES.replace("EXTRA", extra))
    await asyncio.to_thread(service.__enter__)
    try:
        account, refused_account = [await asyncio.to_thread(service.new_account, "1000") for _ in range(2)]
        api_keys = [await asyncio.to_thread(service.new_key, account) for _ in range(KEYS)]
        refused_key = await asyncio.to_thread(service.new_key, refused_account)
        connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            clients = Clients(service.base_url, api_keys, session)
            clients.refused = clients.of(refused_key, REFUSED_WORDS)
            yield clients
    finally:
        await asyncio.to_thread(service.__exit__, None, None, None)


async def run_thinking(phase_s: float, say: Say) -> list[tuple[str, Tally]]:
    """A provider without a limit: usual answers, then half of them think, then usual ones; a burst; long streams."""
    dice = random.Random(1)
    found: list[tuple[str, Tally]] = []
    async with Provider() as provider, served(provider) as clients:
        asked: list[asyncio.Task[None]] = []
        for name, share in (("usual", 0.0), ("half of them think", 0.5), ("usual again", 0.0)):
            say(name)
            provider.think_s = partial(_think_s, dice, share)
            tally = Tally()
            asked += await clients.at_rate(RATE_PER_S, phase_s, tally)
            found.append((name, tally))
        await all_of(asked)
        say("burst")
        provider.think_s = lambda: BURST_S
        found.append(("burst", Tally()))
        await clients.at_once(BURST, found[-1][1])
        provider.speak_s = 5.0
        found.append(("long streams", Tally()))
        await clients.at_once(LONG_STREAMS, found[-1][1])
    return found


async def run_refusing(phase_s: float, say: Say) -> list[tuple[str, Tally]]:
    """A provider without a limit that refuses one customer's prompts: the others' chats beside them, and bursts after
    a single refusal. Returns the tallies of the others."""
    others: list[tuple[str, Tally]] = [
        (f"{name} a refusal", Tally()) for name in ("beside", "burst after", "streams after")
    ]
    say("one customer is refused")
    async with Provider() as provider, served(provider) as clients:
        provider.refused_words = REFUSED_WORDS.encode()
        refused = Tally()
        asked = await asyncio.gather(
            clients.refused.at_rate(REFUSED_PER_S, phase_s, refused), clients.at_rate(RATE_PER_S, phase_s, others[0][1])
        )
        await all_of([*asked[0], *asked[1]])
        for count, (_, tally) in zip((BURST, STREAMS), others[1:], strict=True):
            await clients.refused.ask(refused)
            await clients.at_once(count, tally)
    if refused.served or refused.failed:
        raise AssertionError(f"The customer was to be refused: {refused}")
    return others


async def run_overloaded(way: str, seconds: float, say: Say) -> Overloaded:
    say(f"{PLACES} places, by {way}")
    retry_after = "1" if way == "429 with a time" else ""
    async with Provider(PLACES, refuses=way.startswith("429"), retry_after=retry_after) as provider:
        extra = {
            "gauge": f'queue_metrics_url = "{provider.metrics_url}"',
            "concurrency": f"concurrency = {PLACES}",
        }.get(way, "")
        async with served(provider, extra) as clients:
            peak, began_s = Tally(), time.monotonic()
            await clients.again_and_again(PLACES, seconds, peak)
            peak_per_s = peak.served / (time.monotonic() - began_s)
            # The first seconds are not counted: there it is found out what there is to know.
            before, tally = Tally(), Tally()
            asked = await clients.at_rate(MULTIPLE * peak_per_s, seconds / 2, before)
            served_before, began_s = before.served, time.monotonic()
            asked += await clients.at_rate(MULTIPLE * peak_per_s, seconds, tally)
            # What comes out meanwhile, whenever it was asked for.
            goodput_per_s = (before.served + tally.served - served_before) / (time.monotonic() - began_s)
            offered_per_s = len(asked) / (1.5 * seconds)
            await all_of(asked)
            return Overloaded(way, peak_per_s, offered_per_s, goodput_per_s, tally)


def _think_s(dice: random.Random, share: float) -> float:
    return dice.uniform(*THINKS_S) if dice.random() < share else USUAL_S
