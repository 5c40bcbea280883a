"""A provider with a limited number of slots, in a separate process: requests beyond them wait.

`python -m bench.providers.slots SLOTS FIRST_S ANSWER_S` prints its base address. With 0 slots no request waits.
"""

import asyncio
import contextlib
import sys
from typing import Final

import uvloop
from aiohttp import web

CHUNKS: Final = 8
_HEAD: Final = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":['
CHUNK: Final = f'data: {_HEAD}{{"index":0,"delta":{{"content":" rain"}},"finish_reason":null}}]}}\n\n'.encode()
END: Final = (
    f'data: {_HEAD}{{"index":0,"delta":{{}},"finish_reason":"stop"}}]}}\n\n'
    f'data: {_HEAD}],"usage":{{"prompt_tokens":20,"completion_tokens":{CHUNKS}}}}}\n\n'
    "data: [DONE]\n\n"
).encode()


class Slots:
    def __init__(self, slots: int, first_s: float, answer_s: float) -> None:
        self._slots = asyncio.Semaphore(slots) if slots else contextlib.nullcontext()
        self._first_s = first_s
        self._pause_s = (answer_s - first_s) / CHUNKS

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        async with self._slots:
            if self._first_s:
                await asyncio.sleep(self._first_s)
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(CHUNKS):
                await response.write(CHUNK)
                if self._pause_s:
                    await asyncio.sleep(self._pause_s)
            await response.write(END)
        await response.write_eof()
        return response


async def main(slots: int, first_s: float, answer_s: float) -> None:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", Slots(slots, first_s, answer_s).answer)
    # A disconnected client gets no answer, and frees its slot.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
