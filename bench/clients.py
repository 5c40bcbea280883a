"""Clients in a separate process, which send chats at a given rate (open loop) or with a given concurrency (closed
loop)."""

import asyncio
import itertools
import os
import random
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.connections import Answer, Connections, encode_chat
from bench.processors import Watch
from bench.report import percentile

# Longer than any response takes.
TIMEOUT_S: Final = 30.0
SEED: Final = 1


class Offer(msgspec.Struct, frozen=True):
    api_key: str
    # The mean rate of a Poisson process; ignored if `in_flight` is given.
    chats_per_s: float = 0.0


class Order(msgspec.Struct, frozen=True):
    host: str
    port: int
    offers: list[Offer]
    warm_up_s: float
    seconds: float
    # Concurrency, instead of rates: each finished chat is followed by the next.
    in_flight: int = 0


class Tally(msgspec.Struct):
    """Counts for one key."""

    sent: int = 0
    done: int = 0
    refused: int = 0
    # Neither completed nor refused: a defect.
    failed: int = 0


class Outcome(msgspec.Struct, frozen=True):
    seconds: float
    # In the order of the offers.
    tallies: list[Tally]
    # Of admitted chats only.
    first_token_ms: list[float]
    total_ms: list[float]
    others_share: float

    def per_s(self, name: str) -> float:
        return float(sum(getattr(tally, name) for tally in self.tallies)) / self.seconds

    def first_token_percentile_ms(self, percent: int) -> float | None:
        return percentile(self.first_token_ms, percent) if self.first_token_ms else None

    def total_percentile_ms(self, percent: int) -> float | None:
        return percentile(self.total_ms, percent) if self.total_ms else None


class _Load:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._connections = Connections(order.host, order.port)
        self._chats = [encode_chat(offer.api_key) for offer in order.offers]
        self._running: set[asyncio.Task[None]] = set()
        self._is_counted = False
        self.tallies = [Tally() for _ in order.offers]
        self.first_token_ms: list[float] = []
        self.total_ms: list[float] = []

    async def run(self) -> Outcome:
        sources = [asyncio.create_task(source) for source in self._sources()]
        await asyncio.sleep(self._order.warm_up_s)
        self._is_counted = True
        watch, began_at_s = Watch({}, family=os.getppid()), time.perf_counter()
        await asyncio.sleep(self._order.seconds)
        self._is_counted = False
        others_share, seconds = watch.spent().others_share, time.perf_counter() - began_at_s
        for source in sources:
            if source.done():
                # Sources never end, unless one fails.
                source.result()
            source.cancel()
        if self._running:
            await asyncio.wait(self._running)
        self._connections.close()
        return Outcome(seconds, self.tallies, self.first_token_ms, self.total_ms, others_share)

    def _sources(self) -> list[Coroutine[Any, Any, None]]:
        if self._order.in_flight:
            keys = itertools.cycle(range(len(self._chats)))
            return [self._ask_again_and_again(next(keys)) for _ in range(self._order.in_flight)]
        return [self._ask_at_rate(key, offer.chats_per_s) for key, offer in enumerate(self._order.offers)]

    async def _ask_again_and_again(self, key: int) -> None:
        while True:
            await self._ask(key)

    async def _ask_at_rate(self, key: int, chats_per_s: float) -> None:
        """Sends chats at random times. The times are computed from the start, so a late chat does not delay the
        next."""
        dice = random.Random(f"{SEED} {key}")
        due_at_s = time.perf_counter()
        while True:
            due_at_s += dice.expovariate(chats_per_s)
            await asyncio.sleep(max(0.0, due_at_s - time.perf_counter()))
            task = asyncio.create_task(self._ask(key))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _ask(self, key: int) -> None:
        tally = self.tallies[key]
        is_measured = self._is_counted
        tally.sent += is_measured
        answer: Answer | None = None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await self._connections.ask(self._chats[key])
        except (TimeoutError, OSError):
            pass
        # Throughput counts the chats that end within the measured time; latency, those that begin within it.
        tally.done += self._is_counted and answer is not None and answer.is_done
        tally.refused += self._is_counted and answer is not None and answer.is_refusal
        tally.failed += is_measured and not (answer is not None and (answer.is_done or answer.is_refusal))
        if is_measured and answer is not None and answer.is_done:
            self.first_token_ms.append(1000 * answer.first_s)
            self.total_ms.append(1000 * answer.total_s)


def main(order: Path, outcome: Path) -> None:
    load = _Load(msgspec.json.decode(order.read_bytes(), type=Order))
    outcome.write_bytes(msgspec.json.encode(uvloop.run(load.run())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
