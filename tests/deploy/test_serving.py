import asyncio
import contextlib
from pathlib import Path

from deploy.serving import is_serving
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log


async def test_a_process_that_serves_is_healthy(socket_folder: Path, log: Log) -> None:
    address = f"unix:{socket_folder}/auth.sock"
    server = RpcServer(address, [], log)
    await server.start()

    assert await asyncio.to_thread(is_serving, address)
    await server.stop(0)
    assert not await asyncio.to_thread(is_serving, address)


async def test_a_model_that_answers_is_healthy(socket_folder: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A caller may only look whether a process listens, and say nothing.
        with contextlib.suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    socket = socket_folder / "model.sock"
    server = await asyncio.start_unix_server(answer, socket)

    assert await asyncio.to_thread(is_serving, f"http+unix:{socket}")
    server.close()
    await server.wait_closed()
    assert not await asyncio.to_thread(is_serving, f"http+unix:{socket}")
