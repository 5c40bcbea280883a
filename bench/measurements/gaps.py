"""Readers of many concurrent streams, in a separate process, while prompts of several sizes arrive."""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final, cast

import msgspec
import uvloop

from bench.connections import Connections, encode_chat
from bench.processors import Spent, Watch

PROMPT_EVERY_S: Final = 1.0
WARM_UP_S: Final = 1.0
# Words, punctuation, non-ASCII letters and characters that JSON escapes, as in pasted files.
_PARAGRAPH: Final = (
    'The "café" on the corner opens at seven; by noon 120 people\thave come and gone.\nSome stay: 日本語. '
)


class Order(msgspec.Struct, frozen=True):
    host: str
    port: int
    api_key: str
    streams: int
    # Sizes of the prompts that arrive meanwhile; 0: none. Each round measures every size, so that a disturbance of the
    # machine affects them alike.
    prompt_bytes: list[int]
    round_s: float
    rounds: int
    # The processes whose CPU time is measured, by name.
    processes: dict[str, int]


class Outcome(msgspec.Struct, frozen=True):
    # In the order of the sizes.
    gaps_ms: list[list[float]]
    prompts: list[int]
    prompt_s: list[float]
    others_share: list[float]
    # Duration of all rounds of a size, and the CPU time of the processes in them.
    elapsed_s: list[float]
    cpu_s: list[dict[str, float]]

    def add(self, index: int, elapsed_s: float, spent: Spent) -> None:
        self.elapsed_s[index] += elapsed_s
        self.others_share[index] = max(self.others_share[index], spent.others_share)
        for name, cpu_s in spent.cpu_s.items():
            self.cpu_s[index][name] += cpu_s


class _Reader(asyncio.Protocol):
    """Starts to read a stream."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._heard_at_s = 0.0
        self.gaps_ms: list[float] = []
        self.is_lost = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport does not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if self._heard_at_s:
            self.gaps_ms.append(1000 * (now_s - self._heard_at_s))
        self._heard_at_s = now_s

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def take_gaps_ms(self) -> list[float]:
        gaps_ms, self.gaps_ms = self.gaps_ms, []
        return gaps_ms

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def run(order: Order) -> Outcome:
    loop = asyncio.get_running_loop()
    chat = encode_chat(order.api_key)
    readers = [
        (await loop.create_connection(lambda: _Reader(chat), order.host, order.port))[1] for _ in range(order.streams)
    ]
    connections = Connections(order.host, order.port)
    sizes = order.prompt_bytes
    requests = [encode_chat(order.api_key, text_of(size_bytes)) if size_bytes else b"" for size_bytes in sizes]
    outcome = Outcome(
        gaps_ms=[[] for _ in sizes],
        prompts=[0] * len(sizes),
        prompt_s=[0.0] * len(sizes),
        others_share=[0.0] * len(sizes),
        elapsed_s=[0.0] * len(sizes),
        cpu_s=[dict.fromkeys(order.processes, 0.0) for _ in sizes],
    )
    await asyncio.sleep(WARM_UP_S)
    for _ in range(order.rounds):
        for index, request in enumerate(requests):
            for reader in readers:
                reader.take_gaps_ms()
            watch, began_at_s = Watch(order.processes, family=os.getppid()), time.perf_counter()
            while time.perf_counter() < began_at_s + order.round_s:
                next_at_s = time.perf_counter() + min(PROMPT_EVERY_S, order.round_s)
                if request:
                    answer = await connections.ask(request)
                    if not answer.is_done:
                        raise RuntimeError(f"A prompt was not answered: {answer.received[:500]!r}")
                    outcome.prompts[index] += 1
                    outcome.prompt_s[index] = max(outcome.prompt_s[index], answer.total_s)
                await asyncio.sleep(max(0.0, next_at_s - time.perf_counter()))
            outcome.add(index, time.perf_counter() - began_at_s, watch.spent())
            for reader in readers:
                if reader.is_lost:
                    raise RuntimeError("A stream has ended before its time.")
                outcome.gaps_ms[index].extend(reader.take_gaps_ms())
    for reader in readers:
        reader.close()
    connections.close()
    return outcome


def text_of(size_bytes: int) -> str:
    """Returns a text of at least that many bytes as JSON."""
    return _PARAGRAPH * (1 + size_bytes // len(msgspec.json.encode(_PARAGRAPH)))


def main(order: Path, outcome: Path) -> None:
    outcome.write_bytes(msgspec.json.encode(uvloop.run(run(msgspec.json.decode(order.read_bytes(), type=Order)))))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
