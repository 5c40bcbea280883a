"""The wire of SearXNG's JSON interface, with a far end that does as it is told."""

import asyncio
import threading
from typing import Any, Self

from aiohttp import web


class Searx:
    def __init__(self) -> None:
        # In the form of SearXNG; each query finds them all.
        self.results: list[dict[str, Any]] = []
        self.status = 200
        # Sent in place of results.
        self.body: bytes | None = None
        self.delay_s = 0.0
        # Nothing is answered before it is set.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.queries: list[str] = []
        # What stood in the addresses of requests: nothing of a query should.
        self.addresses: list[str] = []
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/search", self._search)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.stop()

    async def _search(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.addresses.append(request.raw_path)
        self.queries.append(str(form["q"]))
        assert form["format"] == "json"
        await asyncio.sleep(self.delay_s)
        await self.may_answer.wait()
        if self.body is not None or self.status != 200:
            return web.Response(status=self.status, body=self.body, headers={"Location": "/elsewhere"})
        return web.json_response({"query": form["q"], "results": self.results, "answers": [], "infoboxes": []})


def page(number: int, **fields: str) -> dict[str, Any]:
    made = {"url": f"https://page{number}.test/", "title": f"Page {number}", "content": f"Fact {number}.", "score": 1.0}
    return {**made, **fields}


class SearxThread:
    """Searx on its own event loop, for tests of any kind."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.searx = Searx()

    def __enter__(self) -> Searx:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.searx.start(), self._loop).result()
        return self.searx

    def __exit__(self, *failure: object) -> None:
        asyncio.run_coroutine_threadsafe(self.searx.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
