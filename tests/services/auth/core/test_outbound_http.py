"""Requests to the outside: where they go, when they end, and how much of a response is read."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

import pytest

from services.auth.core import outbound_http
from services.auth.core.outbound_http import OutboundHttp, RequestFailed, RequestFailure, is_link_local, is_public

CONTENT = b"x" * 1_000


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("x-host", self.headers["host"])
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *parts: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def found_at(*addresses: str) -> Iterator[None]:
    """Has every name lead to these addresses."""

    def look_up(host: str, port: int) -> list[Any]:
        families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
        return [
            (family, socket.SOCK_STREAM, 0, "", (each, port)) for family, each in zip(families, addresses, strict=True)
        ]

    with patch.object(outbound_http, "look_up", look_up):
        yield


async def get(url: str, *addresses: str, response_bytes_most: int = 1_000) -> tuple[int, bytes]:
    client = OutboundHttp(
        connections_most=1, timeout_s=60.0, response_bytes_most=response_bytes_most, allows_private=True
    )
    try:
        with found_at(*addresses):
            return await client.request(url, {})
    finally:
        client.close()


async def test_the_content_is_read_up_to_the_limit(port: int) -> None:
    url = f"http://issuer.example.ca:{port}/"
    assert await get(url, "127.0.0.1") == (200, CONTENT)
    with pytest.raises(RequestFailed) as failed:
        await get(url, "127.0.0.1", response_bytes_most=999)
    assert failed.value.failure is RequestFailure.TOO_LARGE


async def test_where_only_the_status_is_wanted_nothing_is_read(port: int) -> None:
    assert await get(f"http://issuer.example.ca:{port}/", "127.0.0.1", response_bytes_most=0) == (200, b"")


async def test_a_host_of_which_one_address_answers_is_reached(port: int) -> None:
    # Nothing listens on the first.
    status, _ = await get(f"http://issuer.example.ca:{port}/", "127.0.0.2", "127.0.0.1")
    assert status == 200
    with pytest.raises(RequestFailed) as failed:
        await get(f"http://issuer.example.ca:{port}/", "127.0.0.2", "127.0.0.3")
    assert failed.value.failure is RequestFailure.CONNECTION


class _Silent:
    """A server that takes connections and answers none; with `drips`, it sends a byte of a TLS handshake now and
    then."""

    def __init__(self, *, drips: bool) -> None:
        self._drips = drips
        self._ending = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.connected = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listening.accept()
        self.connected.set()
        with connection, contextlib.suppress(OSError):
            # The head of a record that would have 16 KiB.
            connection.sendall(b"\x16\x03\x03\x40\x00" if self._drips else b"")
            while not self._ending.wait(0.02):
                connection.sendall(b"\x00" if self._drips else b"")

    def close(self) -> None:
        self._ending.set()
        self._thread.join(60)
        self._listening.close()


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_request_that_waits_for_another_is_not_cut_short_by_it(port: int, scheme: str) -> None:
    silent = _Silent(drips=scheme == "https")
    client = OutboundHttp(connections_most=1, timeout_s=1.0, response_bytes_most=1_000, allows_private=True)
    try:
        first = asyncio.create_task(client.request(f"{scheme}://127.0.0.1:{silent.port}/", {}))
        await asyncio.to_thread(silent.connected.wait, 60)
        assert await client.request(f"http://127.0.0.1:{port}/", {}) == (200, CONTENT)
        with pytest.raises(RequestFailed) as failed:
            await first
        assert failed.value.failure is RequestFailure.TIMEOUT
    finally:
        client.close()
        silent.close()


LINK_LOCAL = [
    "169.254.169.254", "169.254.0.1", "fe80::1%eth0", "fe80::a9fe:a9fe", "::ffff:169.254.169.254", "::169.254.169.254",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "2002:a9fe:a9fe::1", "100.100.100.200", "::ffff:100.100.100.200",
    "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
]  # fmt: skip


@pytest.mark.parametrize("address", LINK_LOCAL)
async def test_link_local_and_metadata_addresses_are_refused_where_private_networks_are_allowed(address: str) -> None:
    for addresses in ([address], ["127.0.0.1", address]):
        with pytest.raises(RequestFailed) as failed:
            await get("http://issuer.example.ca:1/", *addresses)
        assert failed.value.failure is RequestFailure.LINK_LOCAL


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "::1", "fc00::1", "::ffff:10.0.0.1", "1.1.1.1"])
def test_other_private_addresses_are_not_link_local(address: str) -> None:
    assert not is_link_local(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "::", "::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1",
        "64:ff9b::a00:1", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1",
    ],
)  # fmt: skip
def test_addresses_of_our_own_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "203.0.114.9", "2606:4700::1111", "64:ff9b::101:101"])
def test_addresses_on_the_internet_are(address: str) -> None:
    assert is_public(address)
