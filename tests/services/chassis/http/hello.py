"""An application that says hello: at once, late, slowly, or at great length; or says back what it was told."""

import asyncio
from typing import Any

PIECE = bytes(1000)
PIECES = 20_000
# Several times what the network between takes.
BIG_PIECE = bytes(30_000_000)


async def hello(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["path"] == "/much":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(PIECES):
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
    if scope["path"] == "/big":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": BIG_PIECE})
        return
    if scope["path"] == "/slow":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5):
            await asyncio.sleep(0.05)
            await send({"type": "http.response.body", "body": b"still here ", "more_body": True})
        await send({"type": "http.response.body", "body": b"hello"})
        return
    if scope["path"] == "/late":
        await asyncio.sleep(0.2)
    if scope["path"] == "/echo":
        await echo(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The names of the headers, one a line, and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    said = b"".join(b"%b\n" % name for name, _ in scope["headers"]) + b"\n" + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})
