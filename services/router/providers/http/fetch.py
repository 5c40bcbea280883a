"""Requests whose response is small and read whole, such as a page of metrics or of search results."""

from dataclasses import dataclass

from services.router.providers.http.connection import HttpConnection, Interrupted
from services.router.providers.http.pool import ConnectionPool


@dataclass(frozen=True, slots=True, repr=False)
class WholeResponse:
    status: int
    body: bytes
    # False: the body is longer than the caller allows, and this is its beginning.
    is_whole: bool


async def fetch(
    connections: ConnectionPool, head: bytes, body: bytes = b"", *, timeout_s: float, most_bytes: int
) -> WholeResponse:
    """Sends a request and reads at most `most_bytes` of the response; redirects are returned, not followed.

    `timeout_s` covers all of it, connecting included. Raises Interrupted.
    """
    with connections.deadlines.limit(timeout_s, Interrupted("did not answer in time")):
        connection = await connections.acquire()
        try:
            return await _fetch_on(connection, head, body, timeout_s, most_bytes)
        except Interrupted:
            # The server closed an idle connection just as it was reused: see `ProviderHttpClient`.
            if not connection.was_closed_unheard:
                raise
        return await _fetch_on(await connections.connect(), head, body, timeout_s, most_bytes)


async def _fetch_on(
    connection: HttpConnection, head: bytes, body: bytes, timeout_s: float, most_bytes: int
) -> WholeResponse:
    received = bytearray()
    try:
        connection.answer_within(timeout_s)
        await connection.post(head, body)
        while len(received) <= most_bytes and (piece := await connection.read()):
            received += piece
        return WholeResponse(connection.status, bytes(received[:most_bytes]), is_whole=len(received) <= most_bytes)
    finally:
        # Reused if nothing is left to read.
        connection.release()
