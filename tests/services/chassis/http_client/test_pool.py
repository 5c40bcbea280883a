"""Connections to one server: how its host is looked up."""

import asyncio
import socket
from typing import Any

import pytest

from services.chassis.http_client import pool
from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.pool import ConnectionPool
from tests.services.chassis.http_client.test_connection import HELLO, Visits, answer_of, ask, server_that, serving
from tests.support.servers.byte_server import read_request


async def test_many_who_connect_at_once_look_the_host_up_once_and_a_failure_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo
    lookups = 0

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal lookups
        lookups += 1
        await asyncio.sleep(0.01)
        if lookups == 1:
            raise socket.gaierror
        return await look_up(*args, **kwargs)

    async with server_that(HELLO) as (found, _):
        monkeypatch.setattr(loop, "getaddrinfo", counted)
        with pytest.raises(Interrupted, match="could not be reached"):
            await answer_of(found)
        assert await asyncio.gather(*(answer_of(found) for _ in range(5))) == [b"hello"] * 5
        await asyncio.gather(*(answer_of(found) for _ in range(8)))
        assert lookups == 2


async def keep_two(found: ConnectionPool) -> None:
    """Has two connections kept."""
    for connection in [await ask(found) for _ in range(2)]:
        while await connection.read():
            pass
        connection.release()


BEHIND = {
    "in the same read": [HELLO + HELLO],
    "later": [HELLO, HELLO],
    "no HTTP": [HELLO, b"garbage"],
}


@pytest.mark.parametrize("says", BEHIND.values(), ids=BEHIND.keys())
async def test_server_that_answers_twice_is_asked_on_connections_that_are_not_kept(says: list[bytes]) -> None:
    visits = Visits()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.connections += 1
        while True:
            visits.requests.append(await read_request(reader))
            if len(visits.requests) == 3:
                for said in says:
                    writer.write(said)
                    await writer.drain()
                    await asyncio.sleep(0.01)
            else:
                writer.write(HELLO)

    async with serving(serve) as found:
        await keep_two(found)
        assert await answer_of(found) == b"hello"
        assert visits.connections == 2
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert await answer_of(found) == b"hello"
        assert visits.connections == 5


async def test_answer_that_came_for_the_chat_before_is_the_last_that_can_be_mistaken() -> None:
    """HTTP/1.1 has no numbers of requests: what arrives after a request was sent is its answer."""
    answers = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answers
        last = b""
        while True:
            await read_request(reader)
            answers += 1
            # The answer before once more, as soon as the next request is there.
            writer.write(last)
            last = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % answers
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(last)

    async with serving(serve) as found:
        received = []
        for _ in range(5):
            received.append(await answer_of(found))
            await asyncio.sleep(0.1)
    assert received == [b"1", b"1", b"3", b"4", b"5"]


async def test_server_that_says_why_it_closes_an_idle_connection_is_trusted() -> None:
    timeout = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    told = asyncio.Event()
    visits = Visits()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.connections += 1
        while True:
            await read_request(reader)
            writer.write(HELLO)
            if not told.is_set():
                await asyncio.sleep(0.01)
                writer.write(timeout)
                told.set()

    async with serving(serve) as found:
        assert await answer_of(found) == b"hello"
        await told.wait()
        await asyncio.sleep(0.05)
        assert [await answer_of(found) for _ in range(3)] == [b"hello"] * 3
    assert visits.connections == 2


async def test_server_is_trusted_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "DISTRUSTED_FOR_S", 0.0)
    says = iter([HELLO + HELLO])
    visits = Visits()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.connections += 1
        while True:
            await read_request(reader)
            writer.write(next(says, HELLO))

    async with serving(serve) as found:
        assert [await answer_of(found) for _ in range(4)] == [b"hello"] * 4
    assert visits.connections == 2
