import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from services.chassis.settings import SettingsError
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.gauge("legato_example", "An example.", lambda: 7)
    return registry


@pytest.fixture
def missing() -> list[str]:
    """Things the process says it lacks."""
    return []


@pytest.fixture
async def address(registry: Registry, log: Log, missing: list[str]) -> AsyncIterator[str]:
    async with serve_operations("127.0.0.1:0", registry, log, lambda: missing) as address:
        yield address


async def ask(address: str, request: bytes) -> tuple[str, str]:
    """The status line, and the body."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(request)
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    return head.split("\r\n")[0], body


async def get(address: str, path: str) -> tuple[str, str]:
    return await ask(address, f"GET {path} HTTP/1.1\r\nHost: legato\r\n\r\n".encode())


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0"])
async def test_what_is_in_the_registry_is_served_until_the_end(listen: str, registry: Registry, log: Log) -> None:
    async with serve_operations(listen, registry, log) as address:
        status, body = await get(address, "/metrics")
    assert status == "HTTP/1.1 200 OK"
    assert body == "# HELP legato_example An example.\n# TYPE legato_example gauge\nlegato_example 7.0\n"
    with pytest.raises(ConnectionError):
        await get(address, "/metrics")


@pytest.mark.parametrize("name", ["Accept", "accept"])
async def test_prometheus_gets_openmetrics_if_it_asks_for_it(address: str, name: str) -> None:
    asked = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
    status, body = await ask(address, f"GET /metrics HTTP/1.1\r\n{name}: {asked}\r\n\r\n".encode())
    assert status == "HTTP/1.1 200 OK"
    assert body == "# HELP legato_example An example.\n# TYPE legato_example gauge\nlegato_example 7.0\n# EOF\n"


async def test_living_process_is_healthy_and_ready_only_while_it_lacks_nothing(
    address: str, missing: list[str]
) -> None:
    assert await get(address, "/readyz") == ("HTTP/1.1 200 OK", "ready\n")
    missing += ["leaving", "metering"]
    assert await get(address, "/readyz") == (
        "HTTP/1.1 503 Service Unavailable",
        "not ready: leaving, metering\n",
    )
    assert await get(address, "/healthz") == ("HTTP/1.1 200 OK", "ok\n")


async def test_full_disks_are_named_whether_it_is_ready_or_not(registry: Registry, log: Log) -> None:
    missing: list[str] = []
    full = lambda: ["auth.db", "the copy of the audit log"]  # noqa: E731
    async with serve_operations("127.0.0.1:0", registry, log, lambda: missing, full=full) as address:
        named = "disk full: auth.db, the copy of the audit log"
        assert await get(address, "/readyz") == ("HTTP/1.1 200 OK", f"ready, {named}\n")
        missing.append("leaving")
        assert await get(address, "/readyz") == ("HTTP/1.1 503 Service Unavailable", f"not ready: leaving, {named}\n")


async def test_a_request_for_something_else_is_told_what_there_is(address: str) -> None:
    status, body = await get(address, "/v1/models")
    assert status == "HTTP/1.1 404 Not Found"
    assert "/readyz" in body
    assert (await ask(address, b"POST /metrics HTTP/1.1\r\n\r\n"))[0] == "HTTP/1.1 405 Method Not Allowed"
    assert await ask(address, b"HEAD /healthz HTTP/1.0\r\n\r\n") == ("HTTP/1.1 200 OK", "")


async def test_visitor_that_says_too_much_is_let_go_and_others_are_answered(address: str) -> None:
    assert await ask(address, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n") == ("", "")
    assert (await get(address, "/healthz"))[0] == "HTTP/1.1 200 OK"


async def test_visitor_that_says_nothing_does_not_hold_up_the_end(registry: Registry, log: Log) -> None:
    async with serve_operations("127.0.0.1:0", registry, log) as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        await get(address, "/healthz")
    assert await reader.read() == b""
    writer.close()


async def test_nothing_is_served_where_no_address_is_given(registry: Registry, log: Log) -> None:
    async with serve_operations("", registry, log) as address:
        assert address == ""


async def test_address_that_is_taken_is_named(registry: Registry, log: Log) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SettingsError, match=f"cannot listen on {listen}"):
            async with serve_operations(listen, registry, log):
                pass


@pytest.mark.parametrize("listen", ["127.0.0.1:99999", "nowhere.invalid:0", "127.0.0.1:port"])
async def test_address_that_is_none_is_named(listen: str, registry: Registry, log: Log) -> None:
    with pytest.raises(SettingsError, match=f"cannot listen on {listen}"):
        async with serve_operations(listen, registry, log):
            pass
