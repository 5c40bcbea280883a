"""Reads how many requests wait at a model's server, from the metrics that the server publishes."""

import math
import re
from typing import Final

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import fetch
from services.chassis.http_client.origin import RequestHead, read_url
from services.chassis.http_client.pool import ConnectionPool

# The metrics of vLLM, SGLang, Text Generation Inference and llama.cpp.
NAMES: Final = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "tgi_queue_size", "llamacpp:requests_deferred")
ANSWER_WITHIN_S: Final = 2.0
LARGEST_BYTES: Final = 4 * 1024 * 1024

_SAMPLE: Final = re.compile(
    rf"^(?:{'|'.join(map(re.escape, NAMES))})(?:\{{(?P<labels>[^\n]*)\}})?[ \t]+(?P<value>\S+)", re.MULTILINE
)
_MODEL: Final = re.compile(r'(?:^|[,\s])model_name="(?P<name>(?:[^"\\]|\\.)*)"')


class QueueGauge:
    """The gauge of one model."""

    def __init__(self, url: str, model_name: str, api_key: str = "") -> None:
        origin, self._path = read_url(url)
        self._model_name = model_name
        self._connections = ConnectionPool(origin, ANSWER_WITHIN_S)
        headers = {"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": "legato"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._head = RequestHead(origin, headers)

    async def read(self) -> float | None:
        """Returns the queue length; None if it is unavailable."""
        try:
            text = await self._get()
        except Interrupted:
            return None
        return None if text is None else count_waiting(text, self._model_name)

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _get(self) -> str | None:
        head = self._head.for_reading(self._path or "/")
        response = await fetch(self._connections, head, timeout_s=ANSWER_WITHIN_S, most_bytes=LARGEST_BYTES)
        return response.body.decode("utf-8", "replace") if response.status == 200 else None


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
