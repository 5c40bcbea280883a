"""Bodies as they arrive: whole, in pieces, too large, too late, or never."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edge.bodies import IN_FLIGHT_BYTES, LARGEST_BODY_BYTES, Bodies, ClientGone
from services.chassis.errors import LegatoError, Reason

Headers = list[tuple[bytes, bytes]]


def arriving(*pieces: bytes, then: str = "the end") -> Callable[[], Awaitable[dict[str, Any]]]:
    """What a server says as the pieces come; afterwards the client leaves, or nothing more happens."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": then != "the end" or number < len(pieces)}
        for number, piece in enumerate(pieces, start=1)
    ]
    if then == "gone":
        messages.append({"type": "http.disconnect"})

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop(0)

    return receive


def announcing(size_bytes: int) -> dict[str, Any]:
    return {"headers": [(b"content-length", b"%d" % size_bytes)]}


async def refusal(receive: Any, scope: dict[str, Any], bodies: Bodies | None = None) -> Reason:
    with pytest.raises(LegatoError) as refused:
        await (bodies or Bodies()).read(scope, receive)
    return refused.value.reason


async def test_body_is_read_whole_however_it_comes() -> None:
    assert await Bodies().read(announcing(5), arriving(b"hello")) == b"hello"
    assert await Bodies().read({"headers": []}, arriving(b"he", b"", b"llo")) == b"hello"


async def test_announced_size_is_refused_before_anything_is_read() -> None:
    receive = arriving(then="nothing")
    assert await refusal(receive, announcing(LARGEST_BODY_BYTES + 1)) is Reason.BODY_TOO_LARGE


async def test_size_that_was_not_announced_is_refused_when_it_is_reached() -> None:
    piece = bytes(LARGEST_BODY_BYTES // 2)
    assert await refusal(arriving(piece, piece, b"x"), {"headers": []}) is Reason.BODY_TOO_LARGE
    assert await refusal(arriving(bytes(LARGEST_BODY_BYTES + 1)), {"headers": []}) is Reason.BODY_TOO_LARGE


@pytest.mark.parametrize("pieces", [(), (b"hel",)], ids=["not begun", "not finished"])
async def test_body_that_does_not_come_in_time_is_not_waited_for(pieces: tuple[bytes, ...]) -> None:
    receive = arriving(*pieces, then="nothing")
    async with asyncio.timeout(5):
        assert await refusal(receive, announcing(5), Bodies(timeout_s=0.05)) is Reason.BODY_TIMEOUT


@pytest.mark.parametrize("pieces", [(), (b"hel",)])
async def test_client_who_leaves_meanwhile_is_not_answered(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ClientGone):
        await Bodies().read(announcing(5), arriving(*pieces, then="gone"))


async def test_room_for_bodies_is_bounded_and_given_back() -> None:
    bodies = Bodies(timeout_s=1)
    slow = [
        asyncio.create_task(refusal(arriving(b"x", then="nothing"), announcing(LARGEST_BODY_BYTES), bodies))
        for _ in range(IN_FLIGHT_BYTES // LARGEST_BODY_BYTES)
    ]
    await asyncio.sleep(0.02)
    assert await refusal(arriving(b"x", then="nothing"), announcing(5), bodies) is Reason.UNAVAILABLE
    assert set(await asyncio.gather(*slow)) == {Reason.BODY_TIMEOUT}
    assert await bodies.read(announcing(2), arriving(b"h", b"i")) == b"hi"


async def test_compressed_bodies_are_refused() -> None:
    headers: Headers = [(b"content-encoding", b"gzip")]
    assert await refusal(arriving(b"hello"), {"headers": headers}) is Reason.ENCODING_NOT_SUPPORTED
