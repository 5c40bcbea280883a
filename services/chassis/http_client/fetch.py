"""Requests whose response is small and read whole, such as a page of metrics or of search results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import Interrupted, TimedOut
from services.chassis.http_client.origin import Origin, RequestHead
from services.chassis.http_client.pool import ConnectionPool, Resolve, resolve
from services.chassis.timing.deadlines import TimeLimit


@dataclass(frozen=True, slots=True, repr=False)
class WholeResponse:
    status: int
    body: bytes
    # False: the body is longer than the caller allows, and this is its beginning.
    is_whole: bool
    # With names in lower case.
    headers: Sequence[tuple[bytes, bytes]] = ()

    def header(self, name: bytes) -> str:
        """Returns a header's value by its lower-case name; empty if missing."""
        return dict(self.headers).get(name, b"").decode("latin-1")


async def fetch(
    connections: ConnectionPool, head: bytes, body: bytes = b"", *, timeout_s: float, most_bytes: int
) -> WholeResponse:
    """Sends a request and reads at most `most_bytes` of the response, nothing but its status if that is 0; redirects
    are returned, not followed.

    `timeout_s` covers all of it, connecting included. Raises Interrupted.
    """
    with TimeLimit(timeout_s, TimedOut()):
        connection = await connections.acquire()
        try:
            return await _fetch_on(connection, head, body, timeout_s, most_bytes)
        except Interrupted:
            # The server closed an idle connection just as it was reused: see `ProviderHttpClient`.
            if not connection.was_closed_unheard:
                raise
        return await _fetch_on(await connections.connect(), head, body, timeout_s, most_bytes)


async def fetch_once(
    origin: Origin,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    method: str = "POST",
    timeout_s: float,
    most_bytes: int,
    resolve: Resolve = resolve,
) -> WholeResponse:
    """Fetches on a connection of its own: by GET if there is no body."""
    request_head = RequestHead(origin, {"Accept-Encoding": "identity", "Connection": "close", **headers})
    if body is None:
        head = request_head.for_reading(target)
    else:
        head = request_head.for_body(target, body, method=method.encode())
    connections = ConnectionPool(origin, timeout_s, keep=False, resolve=resolve)
    try:
        return await fetch(connections, head, body or b"", timeout_s=timeout_s, most_bytes=most_bytes)
    finally:
        await connections.aclose()


async def _fetch_on(
    connection: HttpConnection, head: bytes, body: bytes, timeout_s: float, most_bytes: int
) -> WholeResponse:
    received = bytearray()
    try:
        connection.answer_within(timeout_s)
        await connection.post(head, body)
        while most_bytes and len(received) <= most_bytes and (piece := await connection.read()):
            received += piece
        is_whole = len(received) <= most_bytes
        response = connection.response
        return WholeResponse(response.status, bytes(received[:most_bytes]), is_whole, tuple(response.headers))
    finally:
        # Reused if nothing is left to read.
        connection.release()
