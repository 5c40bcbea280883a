"""The provider's side: a whole router in front of servers that answer with anything at all.

While hostile answers come, another customer's stream is open at the same server, and after each of them a client asks a
plain question there: both must get what the server said to them, whatever it said before.
"""

import asyncio
import io
import random
import re
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.calls.fallback import Targets
from services.router.chat.completion import Completions
from services.router.chat.servicer import RouterServicer
from services.router.models.states import ModelStates
from services.router.providers import open_provider
from services.router.providers.anthropic.platforms import VERSION_2026
from services.router.providers.base import ProviderRoute, Timeouts
from services.router.routes.class_route import in_order
from services.router.routes.routes import Routes
from services.router.settings import MOST_ATTEMPTS
from services.rules.model_classes import CLASSES
from tests.campaigns.fuzz.answers import STREAMS, random_body
from tests.campaigns.fuzz.framing import Framed, random_frame
from tests.campaigns.fuzz.watch import LoopWatch, MemoryWatch
from tests.services.router.harness import Answer, Router, as_json, connected_router, read, target
from tests.services.router.providers.wires import CALLS, TEXT, as_stream
from tests.support.servers.byte_server import read_request

# An answer may not hold the event loop for longer, nor take more memory than so many times its size and this.
LONGEST_TURN_S: Final = 0.25
MOST_GROWTH: Final = 10
MOST_GROWTH_BESIDE_BYTES: Final = 32 * 1024 * 1024
LARGEST_BYTES: Final = 1024 * 1024

_VENDORS: Final = dict(zip(CLASSES, STREAMS, strict=True))
_VERSIONS: Final = {"openai": "", "anthropic": VERSION_2026, "gemini": "v1"}
_NUMBER: Final = re.compile(rb"fuzz-(\d+)")
_HOSTILE_A_VICTIM: Final = 12
_ANSWER_WITHIN_S: Final = 120.0


async def fuzz_provider_side(seconds: float, seed: int, largest_bytes: int = LARGEST_BYTES) -> list[str]:
    """Returns what was wrong; each with the number by which the seed makes it again."""
    found: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(f"unhandled: {context}"))
    watch = LoopWatch()
    with HostileServers() as servers:
        async with _router_in_front_of(servers) as router:
            campaign = _Campaign(servers, router, watch, seed, largest_bytes, found)
            # What is only made once is made before anybody looks.
            for class_id in _VENDORS:
                await campaign.ask_plainly(class_id, "before the first")
            with watch.watching():
                over_at_s = time.monotonic() + seconds
                while time.monotonic() < over_at_s and len(found) < 20:
                    await campaign.run_beside_a_victim(over_at_s)
    return found


class _Campaign:
    def __init__(
        self,
        servers: "HostileServers",
        router: Router,
        watch: LoopWatch,
        seed: int,
        largest_bytes: int,
        found: list[str],
    ) -> None:
        self._servers = servers
        self._router = router
        self._watch = watch
        self._seed = seed
        self._largest_bytes = largest_bytes
        self._found = found
        self._number = 0
        self._victims = 0

    async def run_beside_a_victim(self, over_at_s: float) -> None:
        class_id = CLASSES[self._victims % len(CLASSES)]
        self._victims += 1
        release = self._servers.hold_victims()
        victim = self._router.open(_question("victim"), model=class_id)
        answer = Answer()
        first = await victim.receive()
        if first is not None:
            answer.responses.append(first)
        for _ in range(_HOSTILE_A_VICTIM):
            await self._ask_hostile(class_id)
            if time.monotonic() > over_at_s:
                break
        release()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                answer.responses += (await read(victim)).responses
            self._compare(answer, f"a stream beside those up to {self._number}")
        except (LegatoError, TimeoutError) as error:
            self._found.append(f"seed {self._seed}: a stream beside those up to {self._number} ended with {error!r}")

    async def ask_plainly(self, class_id: str, when: str) -> None:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                self._compare(await self._router.ask(_question("plain"), model=class_id), f"a plain question {when}")
        except (LegatoError, TimeoutError) as error:
            self._found.append(f"seed {self._seed}: a plain question {when} ended with {error!r}")

    async def _ask_hostile(self, class_id: str) -> None:
        self._number += 1
        chance = random.Random(f"{self._seed}-{self._number}")
        body = random_body(chance, _VENDORS[class_id], self._largest_bytes)
        frame = random_frame(chance, body, self._largest_bytes)
        self._servers.frames[self._number] = frame
        what = f"seed {self._seed}, {self._number} ({_VENDORS[class_id]}: {', '.join(frame.changes) or 'unchanged'})"
        size_bytes = frame.size_bytes
        # The turn in which it was made is none of the router's.
        await asyncio.sleep(0)
        self._watch.take_longest_s()
        memory = MemoryWatch()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                await self._router.ask(_question(f"fuzz-{self._number}"), model=class_id, stream=body.is_stream)
        except LegatoError as error:
            if error.reason is Reason.INTERNAL:
                self._found.append(f"{what}: INTERNAL")
        except TimeoutError:
            self._found.append(f"{what}: no end")
        turn_s, growth_bytes = self._watch.take_longest_s(), memory.most_growth_bytes()
        if turn_s > LONGEST_TURN_S:
            self._found.append(f"{what}: {size_bytes} bytes held the loop for {turn_s:.3f} s")
        if growth_bytes > MOST_GROWTH * size_bytes + MOST_GROWTH_BESIDE_BYTES:
            self._found.append(f"{what}: {size_bytes} bytes took {growth_bytes} bytes of memory")
        # Bytes that arrive after the next question was sent cannot be told from its answer.
        await self._servers.has_written()
        del self._servers.frames[self._number]
        await self.ask_plainly(class_id, f"after {what}")

    def _compare(self, answer: Answer, what: str) -> None:
        if answer.text != TEXT or len(answer.tool_calls) != len(CALLS):
            self._found.append(f"seed {self._seed}: {what} got something else than was said to it")


class HostileServers:
    """One for each vendor, in a thread of their own: what they spend is not the router's."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        # What is answered to the question of that number.
        self.frames: dict[int, Framed] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._release = asyncio.Event()
        # Held while a hostile answer is written.
        self._is_writing = asyncio.Lock()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> "HostileServers":
        self._thread.start()
        for vendor in STREAMS:
            self.ports[vendor] = self._do(self._listen(vendor))
        return self

    def __exit__(self, *failure: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold_victims(self) -> Any:
        """Holds them; returns what lets them go on."""
        release = self._release = asyncio.Event()
        return lambda: self._loop.call_soon_threadsafe(release.set)

    async def has_written(self) -> None:
        """Waits until the last hostile answer is written, to its end or until its connection was closed."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._is_writing.acquire(), self._loop))
        self._loop.call_soon_threadsafe(self._is_writing.release)

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _listen(self, vendor: str) -> int:
        stream = as_stream(STREAMS[vendor])

        def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = self._loop.create_task(self._serve(stream, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(begin, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, stream: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._answer(stream, await read_request(reader), writer):
                    pass
        finally:
            writer.close()

    async def _answer(self, stream: bytes, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Says if the connection is kept."""
        hostile = _NUMBER.search(request)
        if hostile is not None:
            frame = self.frames[int(hostile[1])]
            async with self._is_writing:
                for write in frame.writes:
                    writer.write(write)
                    await writer.drain()
                    await asyncio.sleep(0)
            return frame.is_kept
        half = len(stream) // 2
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(stream))
        writer.write(stream[:half])
        if b"victim" in request:
            await self._release.wait()
        writer.write(stream[half:])
        await writer.drain()
        return True

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def _router_in_front_of(servers: HostileServers) -> AsyncIterator[Router]:
    log = Log("fuzz", io.StringIO())
    routes = Routes(
        {
            vendor: ProviderRoute(
                vendor, vendor, f"http://127.0.0.1:{port}", api_key="secret", version=_VERSIONS[vendor]
            )
            for vendor, port in servers.ports.items()
        },
        {class_id: in_order(target(vendor)) for class_id, vendor in _VENDORS.items()},
    )
    with _socket_folder() as folder:
        clock = SystemClock()
        model_states = ModelStates(
            routes, lambda route, _: open_provider(route, Timeouts(), folder / "model.sock"), clock, log
        )
        servicer = RouterServicer(Completions(model_states, Targets(model_states, log, MOST_ATTEMPTS), clock, log), log)
        server = RpcServer(f"unix:{folder}/router.sock", [servicer], log)
        await server.start()
        try:
            async with connected_router(f"unix:{folder}/router.sock", log) as router:
                yield router
        finally:
            await server.stop(0)
            await model_states.aclose()


@contextmanager
def _socket_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _question(text: str) -> bytes:
    return as_json([{"role": "user", "content": text}])
