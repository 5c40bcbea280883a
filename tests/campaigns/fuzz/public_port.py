"""The public port: a whole service, and clients that send anything at all.

While they do, another customer's stream is open at the same edge, and a client asks it something small over and over.
"""

import asyncio
import random
import re
from functools import partial
from typing import Final

import openai

from tests.campaigns.fuzz.hostile_visits import HostileVisits
from tests.campaigns.fuzz.requests import HostileRequest, RequestMaker
from tests.e2e.operations import LISTENING, value_of
from tests.support.service import Service, UpstreamThread
from tests.support.upstreams.openai import Reply
from tests.support.waiting import wait_until
from tests.support.watched_process import WAIT_TIMEOUT_S, WatchedProcess

LARGEST_BYTES: Final = 1024 * 1024
TICKS: Final = 20
REPLY: Final = Reply(contents=[" tick"], repeat=TICKS, event_delay_s=0.05)
PROBE: Final = b"OPTIONS /v1/models HTTP/1.1\r\nHost: fuzz\r\n\r\n"
# What processes hold for clients, by the metrics that tell.
HELD: Final = (("edge", "legato_prompt_bytes"), ("router", "legato_prompt_bytes"), ("edge", "legato_live_streams"))
FAILURES: Final = re.compile(r'"event":\s*"(request\.failed|chat\.failed)"')


async def fuzz_public_port(seconds: float, seed: int, largest_bytes: int = LARGEST_BYTES) -> list[str]:
    """Returns what was wrong; each with the number by which the seed makes it again."""
    with UpstreamThread() as upstream:
        upstream.default_reply = REPLY
        service = Service(upstream, LISTENING)
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
        self._victim_key = service.new_key(service.new_account())
        rich, poor = service.new_account("100.00"), service.new_account("0.01")
        self._keys = [service.new_key(rich), service.new_key(poor), "sk-legato-unknown"]

    async def run(self, seconds: float) -> None:
        edge = WatchedProcess(self._service.process_id("edge-1"))
        visits = HostileVisits(edge, self._service.address, self._seed, self._request)
        stop = asyncio.Event()
        victim = asyncio.create_task(self._follow_streams(stop))
        await visits.run(seconds, PROBE)
        stop.set()
        await victim
        self.found += visits.found
        if self._service.process_id("edge-1") != edge.process_id:
            self.found.append(f"seed {self._seed}: the edge has died")
        await asyncio.to_thread(self._check_returned)
        for failure in sorted(set(FAILURES.findall(self._service.log_text()))):
            self.found.append(f"seed {self._seed}: the log says {failure}")
        if violations := await asyncio.to_thread(self._service.audit):
            self.found.append(f"seed {self._seed}: the books are wrong: {violations[:3]}")

    def _check_returned(self) -> None:
        """Checks that nothing is held for clients that are gone, however they went."""
        for process, name in HELD:
            try:
                wait_until(partial(self._is_returned, process, name))
            except AssertionError:
                self.found.append(f"seed {self._seed}: {process} does not return {name}")

    def _is_returned(self, process: str, name: str) -> bool:
        return not value_of(self._service, process, name)

    def _request(self, number: int) -> HostileRequest:
        return RequestMaker(random.Random(f"{self._seed} {number}"), self._keys, self._largest_bytes).make()

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
