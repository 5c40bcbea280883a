"""The public port: a whole service, and clients that send anything at all.

While they do, another customer's stream is open at the same edge, and somebody asks it something small over and over.
What an edge spends is counted in processor time of the thread of its event loop, so a busy machine changes nothing.
"""

import asyncio
import contextlib
import random
import re
import time
from typing import Final

import openai

from tests.campaigns.fuzz.requests import HostileRequest, RequestMaker
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply
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
LARGEST_BYTES: Final = 1024 * 1024

TICKS: Final = 20
REPLY: Final = Reply(contents=[" tick"], repeat=TICKS, event_delay_s=0.05)
ANSWER_WITHIN_S: Final = 0.5
PROBE: Final = b"OPTIONS /v1/models HTTP/1.1\r\nHost: fuzz\r\n\r\n"
FAILURES: Final = re.compile(r'"event":\s*"(request\.failed|chat\.failed)"')
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


async def fuzz_public_port(seconds: float, seed: int, largest_bytes: int = LARGEST_BYTES) -> list[str]:
    """Returns what was wrong; each with the number by which the seed makes it again."""
    with UpstreamThread() as upstream:
        upstream.default_reply = REPLY
        service = Service(upstream)
        await asyncio.to_thread(service.start)
        try:
            campaign = await asyncio.to_thread(Campaign, service, seed, largest_bytes)
            await campaign.run(seconds)
        finally:
            await asyncio.to_thread(service.__exit__)
    return campaign.found


class Campaign:
    def __init__(self, service: Service, seed: int, largest_bytes: int) -> None:
        self.found: list[str] = []
        self._service = service
        self._seed = seed
        self._largest_bytes = largest_bytes
        self._edge = WatchedProcess(service.process_id("edge-1"))
        self._victim_key = service.new_key(service.new_account())
        rich, poor = service.new_account("100.00"), service.new_account("0.01")
        self._keys = [service.new_key(rich), service.new_key(poor), "sk-legato-nobody"]

    async def run(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        stop = asyncio.Event()
        victim = asyncio.create_task(self._follow_streams(stop))
        # Whatever the first ones need for good is not that of those that come later.
        for number in range(3):
            await self._send(self._request(-1 - number))
        with self._edge.probed(self._service.address, PROBE) as probe:
            number = 0
            while time.monotonic() < end_s or not number:
                await self._try(number, probe)
                number += 1
        stop.set()
        await victim
        for failure in sorted(set(FAILURES.findall(self._service.log_text()))):
            self.found.append(f"seed {self._seed}: the log says {failure}")
        if violations := await asyncio.to_thread(self._service.audit):
            self.found.append(f"seed {self._seed}: the books are wrong: {violations[:3]}")

    def _request(self, number: int) -> HostileRequest:
        return RequestMaker(random.Random(f"{self._seed} {number}"), self._keys, self._largest_bytes).make()

    async def _try(self, number: int, probe: Probe) -> None:
        request = self._request(number)
        name = f"seed {self._seed}, number {number} ({request.name})"
        if self._service.process_id("edge-1") != self._edge.process_id:
            self.found.append(f"{name}: the edge has died")
            self._edge.process_id = self._service.process_id("edge-1")
        before_bytes = self._edge.begin_peak()
        before_s, began_s = self._edge.processor_s(), time.monotonic()
        probe.take_longest_s()
        answer = await self._send(request)
        spent_s = self._edge.processor_s() - before_s
        allowed_s = (
            MOST_SECONDS_BESIDE
            + request.size_bytes * MOST_SECONDS_A_BYTE
            + SHARE_OF_OTHERS * (time.monotonic() - began_s)
        )
        if spent_s > allowed_s:
            self.found.append(f"{name}: took {spent_s:.2f} s of the processor")
        if (held_s := probe.take_longest_s()) > LONGEST_TURN_S:
            self.found.append(f"{name}: held the event loop for {held_s:.2f} s")
        growth_bytes = self._edge.peak_bytes() - before_bytes
        if growth_bytes > MOST_GROWTH * request.size_bytes + MOST_GROWTH_BESIDE_BYTES:
            self.found.append(f"{name}: {request.size_bytes} bytes took {growth_bytes} of memory")
        if b" 500 " in (answer.splitlines() or [b""])[0]:
            self.found.append(f"{name}: was told that something is wrong on our side")
        if answer and not STATUS.match(answer):
            self.found.append(f"{name}: got no HTTP back")

    async def _send(self, request: HostileRequest) -> bytes:
        """The beginning of what came back."""
        reader, writer = await asyncio.open_connection(*self._service.address)
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

    async def _follow_streams(self, stop: asyncio.Event) -> None:
        """Another customer's: each must come whole, whatever is sent meanwhile."""
        async with openai.AsyncOpenAI(
            base_url=self._service.base_url, api_key=self._victim_key, max_retries=0, timeout=WAIT_TIMEOUT_S
        ) as client:
            while not stop.is_set():
                try:
                    stream = await client.chat.completions.create(
                        model="mezzo", messages=[{"role": "user", "content": "Is it raining?"}], stream=True
                    )
                    said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
                except openai.OpenAIError as error:
                    self.found.append(f"seed {self._seed}: another customer's stream failed: {type(error).__name__}")
                    await asyncio.sleep(0.1)
                else:
                    if "".join(said) != " tick" * TICKS:
                        self.found.append(f"seed {self._seed}: another customer's stream was not whole")
