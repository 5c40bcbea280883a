"""Polls the queue length of a model's server once a second while chats run there, and keeps it short.

Queued requests are among those running there, so the concurrency limit is lowered by the excess until the next poll. If
the server does not answer, the queue is unknown and no chat is refused.
"""

import asyncio
import math
import re
from typing import Final

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import fetch
from services.chassis.http_client.origin import RequestHead, read_url
from services.chassis.http_client.pool import ConnectionPool
from services.chassis.load.admission import Gate
from services.chassis.timing.deadlines import Clock
from services.router.routes.target import MOST_WAITING

LOOK_EACH_S: Final = 1.0
# The last reading expires after this long.
STALE_S: Final = 3.0

# The metrics of vLLM, SGLang, Text Generation Inference and llama.cpp.
NAMES: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "llamacpp:requests_deferred")
ANSWER_WITHIN_S: Final = 2.0
LARGEST_BYTES: Final = 4 * 1024 * 1024

_SAMPLE: Final = re.compile(
    rf"^(?:{'|'.join(map(re.escape, NAMES))})(?:\{{(?P<labels>[^\n]*)\}})?[ \t]+(?P<value>\S+)", re.MULTILINE
)
_MODEL: Final = re.compile(r'(?:^|[,\s])model_name="(?P<name>(?:[^"\\]|\\.)*)"')


class QueueGauge:
    """Reads how many requests wait at a model's server, from the metrics that the server publishes."""

    def __init__(self, url: str, model_name: str, api_key: str = "") -> None:
        self._origin, self._path = read_url(url)
        self._model_name = model_name
        self._connections = ConnectionPool(self._origin, ANSWER_WITHIN_S)
        self.use_key(api_key)

    def use_key(self, api_key: str) -> None:
        headers = {"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": "legato"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._head = RequestHead(self._origin, headers)

    async def read(self) -> float | None:
        """Returns the queue length; None if it is unavailable."""
        head = self._head.for_reading(self._path or "/")
        try:
            response = await fetch(self._connections, head, timeout_s=ANSWER_WITHIN_S, most_bytes=LARGEST_BYTES)
        except Interrupted:
            return None
        if response.status != 200:
            return None
        return count_waiting(response.body.decode("utf-8", "replace"), self._model_name)

    async def aclose(self) -> None:
        await self._connections.aclose()


def count_waiting(text: str, model_name: str) -> float | None:
    """Parses Prometheus' text format. Sums over engines; with several models, counts only this one if it is listed."""
    by_model: dict[str | None, float] = {}
    for sample in _SAMPLE.finditer(text):
        try:
            value = float(sample["value"])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        named = _MODEL.search(sample["labels"] or "")
        name = named["name"] if named is not None else None
        by_model[name] = by_model.get(name, 0.0) + value
    if not by_model:
        return None
    return by_model.get(model_name, sum(by_model.values()))


class QueueWatch:
    """The queue watch of one model."""

    def __init__(self, gauge: QueueGauge, gate: Gate, clock: Clock, most_waiting: int = MOST_WAITING) -> None:
        self.gauge = gauge
        self._gate = gate
        self._clock = clock
        self._most_waiting = most_waiting
        self._known_at_s = -math.inf
        self._empty_in_a_row = 0
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Starts polling when a chat is sent to the model."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look_while_used())

    def record(self, waiting: float | None) -> None:
        """Applies one reading of the queue length; None if the read failed."""
        gate, now_s = self._gate, self._clock.elapsed_s()
        if waiting is None:
            if now_s - self._known_at_s >= STALE_S:
                gate.announce(math.inf)
            return
        self._known_at_s = now_s
        self._empty_in_a_row = 0 if waiting else self._empty_in_a_row + 1
        if waiting > self._most_waiting:
            gate.announce(max(1.0, gate.running - (waiting - self._most_waiting)))
        elif gate.announced_limit < math.inf:
            if waiting:
                gate.announce(gate.running + self._most_waiting - waiting)
            elif self._empty_in_a_row == 1:
                gate.announce(2 * max(gate.announced_limit, self._most_waiting))
            else:
                gate.announce(math.inf)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.gauge.aclose()

    async def _look_while_used(self) -> None:
        try:
            while True:
                self.record(await self.gauge.read())
                if not self._gate.running:
                    return
                await asyncio.sleep(LOOK_EACH_S)
        finally:
            self._gate.announce(math.inf)
            self._task = None
