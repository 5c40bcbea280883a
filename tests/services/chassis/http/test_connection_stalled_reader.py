"""Clients that do not read what is sent to them."""

import asyncio
import socket

import pytest

from services.chassis.http.connection import ServerConnection
from tests.services.chassis.http.hello import BIG_PIECE, PIECE, PIECES
from tests.services.chassis.http.hello_server import served


async def test_client_that_does_not_read_is_cut_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off, lose = asyncio.Event(), ServerConnection.connection_lost

    def lose_and_tell(protocol: ServerConnection, error: Exception | None) -> None:
        lose(protocol, error)
        cut_off.set()

    monkeypatch.setattr(ServerConnection, "connection_lost", lose_and_tell)
    async with served(stalled_reader_s=0.1) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            client.sendall(b"GET /much HTTP/1.1\r\nHost: test\r\n\r\n")
            received_bytes = 0
            async with asyncio.timeout(60):
                await cut_off.wait()
                while received := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                    received_bytes += len(received)
            assert 0 < received_bytes < PIECES * len(PIECE)


async def test_client_that_reads_slowly_is_not_cut_off() -> None:
    # Long enough for a busy machine, and shorter than all of the reading.
    async with served(stalled_reader_s=3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /big HTTP/1.1\r\nHost: test\r\n\r\n")
        received_bytes = 0
        async with asyncio.timeout(60):
            while received_bytes < len(BIG_PIECE):
                received = await reader.read(256 * 1024)
                assert received, "cut off while it read"
                received_bytes += len(received)
                await asyncio.sleep(0.02)
        writer.close()
