"""Visits of a port by clients that send anything at all, one after the other.

What the process spends on each is counted in processor time of the thread of its event loop, so a busy machine changes
nothing.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from typing import Final

from tests.campaigns.fuzz.requests import HostileRequest
from tests.support.watched_process import WAIT_TIMEOUT_S, Probe, WatchedProcess

# No request may hold the event loop for longer.
LONGEST_TURN_S: Final = 0.25
# Nor take more of the processor, nor of memory, than so much for each of its bytes and this.
MOST_SECONDS_A_BYTE: Final = 2e-6
MOST_SECONDS_BESIDE: Final = 0.5
# What the stream and the questions take, at most.
SHARE_OF_OTHERS: Final = 0.5
MOST_GROWTH: Final = 10
MOST_GROWTH_BESIDE_BYTES: Final = 48 * 1024 * 1024
ANSWER_WITHIN_S: Final = 0.5
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class HostileVisits:
    def __init__(
        self, process: WatchedProcess, address: tuple[str, int], seed: int, make: Callable[[int], HostileRequest]
    ) -> None:
        """Takes `make`, which makes the request of a number."""
        self.found: list[str] = []
        self._process = process
        self._address = address
        self._seed = seed
        self._make = make

    async def run(self, seconds: float, question: bytes) -> None:
        """Sends requests, while `question` is asked over and over."""
        end_s = time.monotonic() + seconds
        # Whatever the first ones need for good is not that of those that come later.
        for number in range(3):
            await self.send(self._make(-1 - number))
        with self._process.probed(self._address, question) as probe:
            number = 0
            while time.monotonic() < end_s or not number:
                await self._try(number, probe)
                number += 1

    async def _try(self, number: int, probe: Probe) -> None:
        request = self._make(number)
        name = f"seed {self._seed}, number {number} ({request.name})"
        before_bytes = self._process.begin_peak()
        before_s, began_s = self._process.processor_s(), time.monotonic()
        probe.take_longest_s()
        answer = await self.send(request)
        spent_s = self._process.processor_s() - before_s
        allowed_s = (
            MOST_SECONDS_BESIDE
            + request.size_bytes * MOST_SECONDS_A_BYTE
            + SHARE_OF_OTHERS * (time.monotonic() - began_s)
        )
        if spent_s > allowed_s:
            self.found.append(f"{name}: took {spent_s:.2f} s of the processor")
        if (held_s := probe.take_longest_s()) > LONGEST_TURN_S:
            self.found.append(f"{name}: held the event loop for {held_s:.2f} s")
        growth_bytes = self._process.peak_bytes() - before_bytes
        if growth_bytes > MOST_GROWTH * request.size_bytes + MOST_GROWTH_BESIDE_BYTES:
            self.found.append(f"{name}: {request.size_bytes} bytes took {growth_bytes} of memory")
        if b" 500 " in (answer.splitlines() or [b""])[0]:
            self.found.append(f"{name}: was told that something is wrong on our side")
        if answer and not STATUS.match(answer):
            self.found.append(f"{name}: got no HTTP back")

    async def send(self, request: HostileRequest) -> bytes:
        """The beginning of what came back."""
        reader, writer = await asyncio.open_connection(*self._address)
        answer = b""
        try:
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(WAIT_TIMEOUT_S):
                    for piece in request.pieces:
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(request.pause_s)
            if request.end == "half-closes":
                # It may have been closed by now.
                with contextlib.suppress(OSError):
                    writer.write_eof()
            if not request.end.startswith("leaves"):
                with contextlib.suppress(OSError):
                    async with asyncio.timeout(ANSWER_WITHIN_S):
                        answer = await reader.read(4096)
        except TimeoutError:
            self.found.append(f"seed {self._seed}: {request.name}: was not taken within {WAIT_TIMEOUT_S:.0f} s")
        finally:
            writer.transport.abort()
        return answer
