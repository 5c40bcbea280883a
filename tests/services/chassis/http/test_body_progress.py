"""Bodies that arrive slowly."""

import asyncio
from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.http.body_progress import LEAST_PROGRESS_BYTES, TimedReceive


class Arriving:
    """A body of which some pieces arrive and then nothing, or the end of the connection."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._messages = list(messages)
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}


def piece(body: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_upload_that_is_slow_but_moves_is_waited_for() -> None:
    """A telephone in the country is slow."""
    half = piece(bytes(LEAST_PROGRESS_BYTES // 2), more=True)
    receive = TimedReceive(Arriving(half, half).receive, timeout_s=60, within_s=20)
    first_due_s = receive.due_s
    await receive()
    assert receive.due_s == first_due_s
    await receive()
    assert receive.due_s > first_due_s


async def test_upload_that_moves_is_not_waited_for_longer_than_its_timeout() -> None:
    receive = TimedReceive(Arriving(piece(bytes(LEAST_PROGRESS_BYTES), more=True)).receive, timeout_s=20, within_s=20)
    last_due_s = receive.due_s
    await receive()
    assert receive.due_s == last_due_s


async def test_body_that_does_not_come_is_not_waited_for() -> None:
    receive = TimedReceive(Arriving(piece(b"some", more=True)).receive, timeout_s=0.05)
    assert (await receive())["body"] == b"some"
    with pytest.raises(LegatoError, match="within 0 seconds") as refused:
        await receive()
    assert refused.value.reason is Reason.BODY_TIMEOUT


async def test_end_of_a_connection_is_waited_for_once_the_body_is_there() -> None:
    arriving = Arriving(piece(b"all", more=False))
    receive = TimedReceive(arriving.receive, timeout_s=0.02)
    assert (await receive())["body"] == b"all"
    waiting = asyncio.create_task(receive())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    arriving.left.set()
    assert (await waiting)["type"] == "http.disconnect"
