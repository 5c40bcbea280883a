"""The short form of `make overload` for the console: a flood keeps neither visitors from their pages nor the payment
provider from its events."""

import asyncio
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.campaigns.overload.console_flood import (
    CONNECTIONS,
    FORM,
    PAGE,
    allow_connections,
    clients,
    run_console_floods,
)
from tests.support.console_process import running_console

BEFORE_FILE = b'--b\r\nContent-Disposition: form-data; name="document"; filename="notes.txt"\r\n\r\n'
AFTER_FILE = b"\r\n--b--\r\n"


@pytest.mark.long
async def test_no_flood_keeps_visitors_from_pages_and_events_from_being_booked(socket_folder: Path, log: Log) -> None:
    assert await run_console_floods(socket_folder, log, print) == []


@pytest.mark.long
async def test_slow_browsers_and_uploads_are_served_among_idle_connections(socket_folder: Path, log: Log) -> None:
    allow_connections(2 * CONNECTIONS)
    async with running_console(socket_folder, log) as console, clients(console, CONNECTIONS, b"", "127.0.0.2"):
        file = BEFORE_FILE + b"A note. " * 7_000 + AFTER_FILE
        upload = (
            FORM.replace(b"/sign-in", b"/documents")
            + (
                f"Cookie: __Host-legato={console.backends.auth.sign_in()}\r\n"
                "Content-Type: multipart/form-data; boundary=b\r\n"
                f"Content-Length: {len(file)}\r\n\r\n"
            ).encode()
        )
        page, uploaded = await asyncio.gather(
            in_pieces(console.address, PAGE, 5), in_pieces(console.address, upload + file, 1_000)
        )
        assert (page, uploaded) == (200, 303)


async def in_pieces(address: tuple[str, int], request: bytes, piece_bytes: int) -> int:
    """The status of a request that arrives piece by piece."""
    reader, writer = await asyncio.open_connection(*address)
    for begin in range(0, len(request), piece_bytes):
        writer.write(request[begin : begin + piece_bytes])
        await writer.drain()
        await asyncio.sleep(0.002)
    async with asyncio.timeout(60):
        line = await reader.readline()
    writer.close()
    return int(line.split()[1])
