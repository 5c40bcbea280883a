"""One account against the others: it sends large prompts, and then as many chats as it can, to a model that thinks.

The service runs with the manifests' limit on memory. Others must be served meanwhile, those of the account that are too
many must be refused in the error shape, and no process may need more memory than it has."""

import asyncio
import io
import resource
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.campaigns.overload.provider import CHUNK, END
from tests.deploy.kubernetes.kustomize import read_yaml
from tests.support.service import Service
from tests.support.watched_process import WAIT_TIMEOUT_S, WatchedProcess

MANIFESTS: Final = Path(__file__).parents[3] / "deploy/kubernetes/base"
PROCESSES: Final = {"edge-1": "edge", "router": "router"}
CONNECTIONS: Final = 90
SETTINGS: Final = {
    "LEGATO_EDGE_CONNECTIONS": str(CONNECTIONS),
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "LEGATO_TOKENS_PER_MINUTE": "1000000000",
}
PROMPTS: Final = 60
PROMPT_BYTES: Final = 4_300_000
# Copies of each waiting prompt that a process may have, with all else that a chat takes.
MOST_COPIES: Final = 2.0
OTHERS: Final = 10
PONDER: Final = "Ponder."


class PonderingProvider:
    """Answers at once, except chats that are to be pondered: those when it is told to."""

    def __init__(self) -> None:
        self.pondering = 0
        self.go_on = asyncio.Event()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        ponders, word, end = False, PONDER.encode(), b""
        async for piece in request.content.iter_chunked(65536):
            ponders = ponders or word in end + piece
            end = piece[-len(word) :]
        if ponders:
            self.pondering += 1
            try:
                await self.go_on.wait()
            finally:
                self.pondering -= 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(CHUNK + END)
        await response.write_eof()
        return response


def chat_body(content: str, padding_bytes: int = 0) -> bytes:
    """Returns a request; the padding is space between messages, which takes room and no time to count."""
    message = msgspec.json.encode({"role": "user", "content": content})
    return b'{"model":"mezzo","stream":true,"messages":[' + message + b" " * padding_bytes + b"]}"


@dataclass
class Outcomes:
    served: int = 0
    refused: int = 0
    # Whatever else came, such as a broken stream.
    others: list[str] = field(default_factory=list)


class Customer:
    def __init__(self, base_url: str, api_key: str, session: aiohttp.ClientSession) -> None:
        self._url = f"{base_url}/chat/completions"
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self._session = session
        self.outcomes = Outcomes()

    def ask(self, body: bytes, times: int = 1) -> list["asyncio.Task[None]"]:
        return [asyncio.create_task(self._ask(body)) for _ in range(times)]

    async def _ask(self, body: bytes) -> None:
        try:
            async with (
                asyncio.timeout(WAIT_TIMEOUT_S),
                self._session.post(self._url, data=io.BytesIO(body), headers=self._headers) as answer,
            ):
                said = await answer.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            self.outcomes.others.append(repr(error))
            return
        if answer.status == 200 and b"data: [DONE]" in said:
            self.outcomes.served += 1
        elif answer.status == 429 and b'"saturated"' in said and int(answer.headers["retry-after"]) > 0:
            self.outcomes.refused += 1
        else:
            self.outcomes.others.append(f"{answer.status} {said[:300]!r}")


class Campaign:
    """A running service, one account that wants everything, and others."""

    def __init__(self, service: Service, provider: PonderingProvider, session: aiohttp.ClientSession) -> None:
        self._service = service
        self._provider = provider
        self.violations: list[str] = []
        self.figures: list[str] = []
        self.greedy = self._customer(session)
        self.others = [self._customer(session) for _ in range(OTHERS)]
        self._processes = {name: WatchedProcess(service.process_id(name)) for name in PROCESSES}
        for name, process in self._processes.items():
            limit_bytes = _limit_bytes(PROCESSES[name])
            resource.prlimit(process.process_id, resource.RLIMIT_DATA, (limit_bytes, limit_bytes))

    def _customer(self, session: aiohttp.ClientSession) -> Customer:
        account_id = self._service.new_account("1000")
        return Customer(self._service.base_url, self._service.new_key(account_id), session)

    async def send_prompts(self, prompts: int, prompt_bytes: int) -> None:
        """Sends large prompts that wait for the model, while others send small ones, and one a large one."""
        before_bytes = {name: process.begin_peak() for name, process in self._processes.items()}
        asked = self.greedy.ask(chat_body(PONDER, prompt_bytes), prompts)
        waiting = await self._pondered(asked)
        large, small = self.others[0].ask(chat_body("Hi", prompt_bytes)), chat_body("Hi")
        await asyncio.gather(*large, *(task for other in self.others for task in other.ask(small)))
        for name, process in self._processes.items():
            copies = (process.bytes_in("VmRSS") - before_bytes[name]) / (waiting * prompt_bytes)
            peak_bytes = process.peak_bytes()
            self.figures.append(f"{name}: {copies:.2f} copies of {waiting} prompts, peak {peak_bytes >> 20} MiB")
            self._require(copies < MOST_COPIES, self.figures[-1])
            self._require(peak_bytes < _limit_bytes(PROCESSES[name]), self.figures[-1])
        self._require(waiting > prompts // 2, f"only {waiting} prompts of one account were taken")
        await self._end(asked, "prompts", waiting)

    async def take_places(self) -> None:
        """Sends as many small chats that wait as there are connections, while others chat."""
        asked = self.greedy.ask(chat_body(PONDER), CONNECTIONS)
        waiting = await self._pondered(asked)
        self.figures.append(f"places: {waiting} of {CONNECTIONS}")
        self._require(CONNECTIONS // 2 < waiting < CONNECTIONS, self.figures[-1])
        await asyncio.gather(*(task for other in self.others for task in other.ask(chat_body("Hi"))))
        await self._end(asked, "places", waiting)

    async def _pondered(self, asked: list["asyncio.Task[None]"]) -> int:
        """Waits until each of these chats is refused or waits for the model; returns how many wait."""
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while self._provider.pondering + sum(task.done() for task in asked) < len(asked):
                await asyncio.sleep(0.05)
        return self._provider.pondering

    async def _end(self, asked: list["asyncio.Task[None]"], name: str, waiting: int) -> None:
        """Lets the model answer, and compares what became of everybody."""
        served_before = self.greedy.outcomes.served
        self._provider.go_on.set()
        await asyncio.gather(*asked)
        self._provider.go_on.clear()
        self._require(self.greedy.outcomes.served - served_before == waiting, f"{name}: not all who waited were served")
        for customer in (self.greedy, *self.others):
            self._require(not customer.outcomes.others, f"{name}: {customer.outcomes.others[:1]}")
        refused = sum(other.outcomes.refused for other in self.others)
        self._require(not refused, f"{name}: {refused} chats of others were refused")
        for process_name, process in self._processes.items():
            is_same = self._service.process_id(process_name) == process.process_id
            self._require(is_same, f"{name}: {process_name} has died")

    def _require(self, holds: bool, violation: str) -> None:
        if not holds:
            self.violations.append(violation)


@asynccontextmanager
async def running_campaign(settings: Mapping[str, str] | None = None) -> AsyncIterator[Campaign]:
    async with PonderingProvider() as provider:
        service = Service(provider, {**SETTINGS, **(settings or {})}, is_forked=False)
        await asyncio.to_thread(service.__enter__)
        try:
            connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                yield await asyncio.to_thread(Campaign, service, provider, session)
        finally:
            await asyncio.to_thread(service.__exit__, None, None, None)


def _limit_bytes(process: str) -> int:
    """Returns the memory limit of a process's container."""
    for document in read_yaml((MANIFESTS / f"{process}.yaml").read_text()):
        if document["kind"] in ("Deployment", "StatefulSet"):
            limit: str = document["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
            return int(limit.removesuffix("Gi")) << 30 if limit.endswith("Gi") else int(limit.removesuffix("Mi")) << 20
    raise AssertionError(f"{process} has no manifest")
