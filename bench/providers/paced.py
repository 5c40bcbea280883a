"""A provider whose streams continue at a fixed pace until the client disconnects; a large prompt gets a one-word
answer.

`python -m bench.providers.paced PAUSE_S` prints its base address.
"""

import asyncio
import sys
from typing import Final

import uvloop
from aiohttp import web

from bench.providers.slots import CHUNK, END

LARGEST_BODY_BYTES: Final = 64 * 1024 * 1024
MUCH_BYTES: Final = 32 * 1024


async def answer(request: web.Request, pause_s: float) -> web.StreamResponse:
    asked_bytes = len(await request.read())
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(CHUNK)
    # Times are computed from the start, so a late chunk does not delay the next.
    loop = asyncio.get_running_loop()
    due_at_s = loop.time()
    while asked_bytes < MUCH_BYTES:
        due_at_s += pause_s
        await asyncio.sleep(due_at_s - loop.time())
        await response.write(CHUNK)
    await response.write(END)
    await response.write_eof()
    return response


async def main(pause_s: float) -> None:
    app = web.Application(client_max_size=LARGEST_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", lambda request: answer(request, pause_s))
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(float(sys.argv[1])))
