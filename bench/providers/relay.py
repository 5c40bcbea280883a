"""The reference for CPU time: a gateway that only forwards bytes, on a common web framework.

`python -m bench.providers.relay BASE_URL` prints its base address. It compares one key, parses no request, and counts
and bills nothing.
"""

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

KEY: Final = "relayed"


def relay_to(base_url: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # One connection for each chat.
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:
            app.state.session = session
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return Response(status_code=401)
        session: aiohttp.ClientSession = request.app.state.session
        answer = await session.post(
            f"{base_url}/chat/completions",
            data=await request.body(),
            headers={"content-type": "application/json"},
        )
        kind = answer.headers.get("content-type", "application/json")
        if kind.startswith("text/event-stream"):
            return StreamingResponse(answer.content.iter_any(), answer.status, media_type=kind)
        return Response(await answer.read(), answer.status, media_type=kind)

    return app


def main(base_url: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    config = uvicorn.Config(relay_to(base_url), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
