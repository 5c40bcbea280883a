"""The soak's clients, in a separate process: they arrive at random times, and every other one disconnects at a random
time.

`python -m bench.soak.clients ORDER OUTCOME` reads the first file and writes the second.
"""

import asyncio
import random
import re
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from bench.connections import Connections
from bench.soak.kinds import KINDS, Kind, encode
from bench.targets import PRICES
from services.metering.credit.prices import read_prices
from services.rules.usage import Usage

# Longer than any chat takes, on a shared machine too.
TIMEOUT_S: Final = 120.0
SEED: Final = 1
# At this concurrency new clients wait, so that a slow machine is not overloaded.
IN_FLIGHT_MOST: Final = 200
REPORTED_MOST: Final = 3

_PROMPT_TOKENS: Final = re.compile(rb'"prompt_tokens":(\d+)')
_COMPLETION_TOKENS: Final = re.compile(rb'"completion_tokens":(\d+)')
_STATUS: Final = re.compile(rb"HTTP/1.1 (\d\d\d)")


class Order(msgspec.Struct, frozen=True):
    host: str
    port: int
    # Clients that stay and clients that disconnect use different accounts, so that the charges of the former are exact.
    staying_key: str
    leaving_key: str
    chats_per_s: float
    seconds: float


class Outcome(msgspec.Struct):
    chats: int = 0
    answered: int = 0
    refused: int = 0
    left: int = 0
    # Refused with a retry-after, as happens on a machine that is too slow.
    turned_away: int = 0
    # The cost of the answers of clients that stayed, by the reported usage.
    worth_nanos: int = 0
    # The most that may be charged to clients that disconnected.
    requested_tokens: int = 0
    by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    wrong: int = 0
    # The first few.
    wrongs: list[str] = msgspec.field(default_factory=list)


class WrongAnswer(Exception):
    pass


class _Clients:
    def __init__(self, order: Order) -> None:
        self._order = order
        self._dice = random.Random(SEED)
        self._connections = Connections(order.host, order.port)
        self._running: set[asyncio.Task[None]] = set()
        self._prices = read_prices(PRICES).current
        self.outcome = Outcome(by_kind={kind.name: 0 for kind in KINDS})

    async def run(self) -> Outcome:
        """Starts clients at random times. The times are computed from the start, so a late client does not delay the
        next."""
        due_at_s = began_at_s = time.perf_counter()
        while due_at_s < began_at_s + self._order.seconds:
            await asyncio.sleep(max(0.0, due_at_s - time.perf_counter()))
            if len(self._running) < IN_FLIGHT_MOST:
                self._begin_chat()
            due_at_s += self._dice.expovariate(self._order.chats_per_s)
        if self._running:
            await asyncio.wait(self._running)
        self._connections.close()
        return self.outcome

    def _begin_chat(self) -> None:
        [kind] = self._dice.choices(KINDS, [kind.weight for kind in KINDS])
        self.outcome.chats += 1
        self.outcome.by_kind[kind.name] += 1
        task = asyncio.create_task(self._leave(kind) if self._dice.random() < 0.5 else self._stay(kind))
        self._running.add(task)
        task.add_done_callback(self._end_chat)

    def _end_chat(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = task.exception()
        if error is not None:
            self.outcome.wrong += 1
            if len(self.outcome.wrongs) < REPORTED_MOST:
                self.outcome.wrongs.append(f"{type(error).__name__}: {error}")

    async def _stay(self, kind: Kind) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            answer = await self._connections.ask(encode(kind, self._order.staying_key))
        received = answer.received
        status = int(found[1]) if (found := _STATUS.match(received)) else 0
        if kind.is_refused and 400 <= status < 500:
            self.outcome.refused += 1
            return
        if status == 503:
            self.outcome.turned_away += 1
            return
        prompt, completion = _PROMPT_TOKENS.findall(received), _COMPLETION_TOKENS.findall(received)
        is_whole = answer.is_done or not kind.chunks
        if status != 200 or not is_whole or [int(tokens) for tokens in completion] != [kind.completion_tokens]:
            raise WrongAnswer(f"{kind.name}: {status} {received[-200:]!r}")
        usage = Usage(prompt_tokens=int(prompt[0]), completion_tokens=kind.completion_tokens)
        self.outcome.answered += 1
        self.outcome.worth_nanos += self._prices[kind.class_id].cost_nanos(usage)

    async def _leave(self, kind: Kind) -> None:
        """Disconnects at a random time: while sending, before the answer, during it or shortly after it, by close or
        reset, and with or without reading."""
        request = encode(kind, self._order.leaving_key)
        if self._dice.random() < 0.1:
            request = request[: self._dice.randrange(len(request))]
        elif not kind.is_refused:
            self.outcome.requested_tokens += kind.max_tokens
        reads, resets = self._dice.random() < 0.8, self._dice.random() < 0.5
        stays_s = self._dice.uniform(0, 1.3 * kind.lasts_s)
        reader, writer = await asyncio.open_connection(self._order.host, self._order.port)
        try:
            writer.write(request)
            async with asyncio.timeout(stays_s):
                if reads:
                    await reader.read()
                await asyncio.Event().wait()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            if resets:
                _reset(writer)
            writer.close()
        self.outcome.left += 1


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a reset, like a killed process."""
    connection = writer.get_extra_info("socket")
    if connection is not None and not writer.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def main(order: Path, outcome: Path) -> None:
    clients = _Clients(msgspec.json.decode(order.read_bytes(), type=Order))
    outcome.write_bytes(msgspec.json.encode(uvloop.run(clients.run())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
