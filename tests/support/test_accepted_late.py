"""A server that is closed leaves no connection open, whenever a client connected."""

import asyncio
import gc
import socket
import warnings

# A connection is accepted, becomes a transport, and is handed to its handler within some turns of the loop.
TURNS = 8


def test_nothing_stays_open_of_a_client_that_connects_in_the_last_moment() -> None:
    served: list[int] = []

    async def close_after(turns: int) -> socket.socket:
        def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(turns)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        server.close()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return client

    for turns in range(TURNS):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            client = asyncio.run(close_after(turns))
            gc.collect()
        client.close()
        assert [str(each.message) for each in warned] == [], f"closed after {turns} turns"
    # A client that came in time was served.
    assert TURNS - 1 in served
