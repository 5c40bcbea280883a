"""Queries to SearXNG, and what is made of its answers."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.router.grounding.search import LONGEST_TITLE, RESULTS_MOST, SearchFailed, SearxSearch
from tests.services.router.providers.certificates import make_certificate, server_context
from tests.support.outside.searx import Searx, page
from tests.support.servers.byte_server import listening, read_request


@pytest.fixture
async def searx() -> AsyncIterator[Searx]:
    async with Searx() as searx:
        yield searx


@asynccontextmanager
async def searching(base_url: str, timeout_s: float = 5) -> AsyncIterator[SearxSearch]:
    search = SearxSearch(base_url, timeout_s)
    try:
        yield search
    finally:
        await search.aclose()


async def test_results_come_in_their_order_and_the_query_in_no_address(searx: Searx) -> None:
    searx.results = [page(1), page(2, content="  two\n lines "), page(1), page(3, url="javascript:alert(1)"), page(4)]
    async with searching(searx.base_url + "/") as search:
        found = await search.find("café & more")
    assert [(result.title, result.snippet) for result in found] == [
        ("Page 1", "Fact 1."),
        ("Page 2", "two lines"),
        ("Page 4", "Fact 4."),
    ]
    assert (searx.queries, searx.addresses) == (["café & more"], ["/search"])


async def test_only_the_first_results_are_taken_and_none_is_long(searx: Searx) -> None:
    searx.results = [page(number, content="word " * 1_000, title="") for number in range(20)]
    async with searching(searx.base_url) as search:
        found = await search.find("x")
    assert len(found) == RESULTS_MOST
    assert all(len(result.snippet) <= 600 and result.title == result.url for result in found)


async def test_address_that_is_too_long_to_be_one_is_passed_over(searx: Searx) -> None:
    searx.results = [
        page(1, url="https://long.test/" + "x" * 3_000),
        page(2, title="", url="https://x.test/" + "y" * 500),
    ]
    async with searching(searx.base_url) as search:
        [result] = await search.find("x")
    assert result.url == "https://x.test/" + "y" * 500
    assert len(result.title) <= LONGEST_TITLE


async def test_search_that_fails_in_whatever_way_is_away(searx: Searx) -> None:
    async with searching(searx.base_url, timeout_s=0.2) as search:
        searx.body = b"<html>no JSON"
        with pytest.raises(SearchFailed):
            await search.find("x")
        searx.body = b'{"results":[],"answers":' + b"[" * 100_000
        with pytest.raises(SearchFailed):
            await search.find("x")
        searx.body = b" " * 3_000_000
        with pytest.raises(SearchFailed):
            await search.find("x")
        for searx.status in (302, 403, 429, 500):
            with pytest.raises(SearchFailed):
                await search.find("x")
        searx.status, searx.body, searx.delay_s = 200, None, 1
        with pytest.raises(SearchFailed):
            await search.find("x")


async def test_user_and_password_of_the_address_are_sent_as_credentials() -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"results":[]}')

    async with listening(serve) as port, searching(f"http://me:p%40ss@127.0.0.1:{port}/searx/") as search:
        assert await search.find("x") == []
    [request] = requests
    assert request.startswith(f"POST /searx/search HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n".encode())
    assert b"\r\nAuthorization: Basic bWU6cEBzcw==\r\n" in request


async def test_certificate_without_an_issuer_is_not_trusted(tmp_path: Path) -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            requests.append(await read_request(reader))
        writer.close()

    tls = server_context(make_certificate(tmp_path, "localhost"))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server, searching(f"https://localhost:{server.sockets[0].getsockname()[1]}") as search:
        with pytest.raises(SearchFailed, match="could not be reached"):
            await search.find("x")
    assert requests == []


async def test_query_that_is_no_valid_text_is_searched_for_all_the_same(searx: Searx) -> None:
    async with searching(searx.base_url) as search:
        assert await search.find("half \ud83d") == []
    assert searx.queries == ["half ?"]


async def test_search_without_a_server_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with searching(f"http://127.0.0.1:{port}") as search:
        with pytest.raises(SearchFailed):
            await search.find("x")
