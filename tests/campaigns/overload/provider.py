"""A provider that thinks before it answers, and may have so many places: a request beyond them waits, or is refused."""

import asyncio
from collections.abc import Callable
from typing import Final, Self

from aiohttp import web

CHUNKS: Final = 4
_HEAD: Final = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":['
CHUNK: Final = f'data: {_HEAD}{{"index":0,"delta":{{"content":" rain"}},"finish_reason":null}}]}}\n\n'.encode()
END: Final = (
    f'data: {_HEAD}{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}\n\n'
    f'data: {_HEAD}],"usage":{{"prompt_tokens":20,"completion_tokens":{CHUNKS}}}}}\n\n'
    "data: [DONE]\n\n"
).encode()


class Provider:
    def __init__(self, places: int | None = None, *, refuses: bool = False, retry_after: str = "") -> None:
        """`refuses`: those for whom there is no place are told so, with this header if there is one; else they wait."""
        self._free = asyncio.Semaphore(places or 1_000_000)
        self._refuses = refuses
        self._headers = {"retry-after": retry_after} if retry_after else {}
        self._waiting = 0
        # Until an answer begins, and from there to its end.
        self.think_s: Callable[[], float] = lambda: 0.3
        self.speak_s = 0.5
        # Prompts with these words are refused, for twenty seconds, whatever room there is.
        self.refused_words = b""
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_get("/metrics", self._tell_queue)
        # Who left is not answered, and gives its place back.
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *failure: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        prompt = await request.read()
        if self.refused_words and self.refused_words in prompt:
            return web.Response(status=429, headers={"retry-after": "20"})
        if self._refuses and self._free.locked():
            return web.Response(status=429, headers=self._headers)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        try:
            await asyncio.sleep(self.think_s())
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(CHUNKS):
                await response.write(CHUNK)
                await asyncio.sleep(self.speak_s / CHUNKS)
            await response.write(END)
        finally:
            self._free.release()
        await response.write_eof()
        return response

    async def _tell_queue(self, request: web.Request) -> web.Response:
        lines = [
            "# TYPE vllm:num_requests_waiting gauge",
            f'vllm:num_requests_waiting{{engine="0",model_name="m"}} {self._waiting}.0',
        ]
        return web.Response(text="\n".join(lines) + "\n")
