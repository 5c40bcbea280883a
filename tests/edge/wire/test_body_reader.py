"""Bodies of requests, which arrive whole, in pieces, slowly or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from edge.wire.body_reader import LARGEST_BODY_BYTES, ClientGone, announced_bytes, read_body
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.body_progress import TimedReceive
from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import PROMPT_BYTES, UNCHARGED_BYTES, open_prompt_memory
from tests.support.waiting import until

Headers = list[tuple[bytes, bytes]]


def arriving(*pieces: bytes, then: str = "the end") -> Callable[[], Awaitable[dict[str, Any]]]:
    """Plays a server as the pieces come; afterwards the client leaves, or nothing more happens."""
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


async def read(
    receive: Any,
    scope: dict[str, Any],
    memory: FairBudget | None = None,
    account_id: str = "acct_a",
    **timeouts_s: float,
) -> bytes:
    with (memory or open_prompt_memory()).hold(account_id) as holding:
        return await read_body(scope, TimedReceive(receive, **timeouts_s), holding)


async def refusal(receive: Any, scope: dict[str, Any], *account: Any, **timeouts_s: Any) -> Reason:
    with pytest.raises(LegatoError) as refused:
        await read(receive, scope, *account, **timeouts_s)
    return refused.value.reason


async def test_body_is_read_whole_however_it_comes() -> None:
    assert await read(arriving(b"hello"), announcing(5)) == b"hello"
    assert await read(arriving(b"he", b"", b"llo"), {"headers": []}) == b"hello"


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
    async with asyncio.timeout(60):
        assert await refusal(receive, announcing(5), timeout_s=0.05) is Reason.BODY_TIMEOUT


@pytest.mark.parametrize("pieces", [(), (b"hel",)])
async def test_client_who_leaves_meanwhile_is_not_answered(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(ClientGone):
        await read(arriving(*pieces, then="gone"), announcing(5))


async def test_uploads_that_stand_still_take_no_more_room_than_they_have_sent() -> None:
    """Sixteen connections that had sent a byte each were enough to refuse everybody."""
    memory = open_prompt_memory()
    begun = bytes(UNCHARGED_BYTES + 1)
    idle = [
        asyncio.create_task(
            refusal(arriving(begun, then="nothing"), announcing(LARGEST_BODY_BYTES), memory, "acct_idle")
        )
        for _ in range(1000)
    ]
    await until(lambda: memory.used == len(idle))
    body = bytes(LARGEST_BODY_BYTES // 2)
    for account_id in ("idle", "other"):
        arrived = await read(arriving(body, body), announcing(LARGEST_BODY_BYTES), memory, account_id)
        assert arrived == body + body
    for upload in idle:
        upload.cancel()
    await asyncio.gather(*idle, return_exceptions=True)
    assert memory.used == 0


async def test_account_that_fills_the_room_leaves_some_to_others() -> None:
    memory = open_prompt_memory()
    piece = bytes(LARGEST_BODY_BYTES - 1)
    uploads: list[asyncio.Task[Reason]] = []
    while not uploads or not uploads[-1].done():
        uploads.append(
            asyncio.create_task(
                refusal(arriving(piece, then="nothing"), announcing(LARGEST_BODY_BYTES), memory, "acct_big")
            )
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await uploads.pop() is Reason.SATURATED
    # It had most of it, and it was not refused before.
    assert PROMPT_BYTES // 2 < memory.used < PROMPT_BYTES * 3 // 4
    half = bytes(LARGEST_BODY_BYTES // 2)
    arrived = await read(arriving(half, half), announcing(LARGEST_BODY_BYTES), memory, "acct_small")
    assert arrived == half + half
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)
    assert memory.used == 0


async def test_room_is_never_overdrawn_however_many_accounts_there_are() -> None:
    memory = open_prompt_memory()
    piece = bytes(LARGEST_BODY_BYTES - 1)
    uploads = [
        asyncio.create_task(
            refusal(arriving(piece, then="nothing"), announcing(LARGEST_BODY_BYTES), memory, f"acct_{number}")
        )
        for number in range(2 * PROMPT_BYTES // LARGEST_BODY_BYTES)
    ]
    await until(uploads[-1].done)
    assert memory.used <= PROMPT_BYTES
    for upload in uploads:
        upload.cancel()
    await asyncio.gather(*uploads, return_exceptions=True)


async def test_body_without_memory_is_refused_before_any_of_it_is_read() -> None:
    memory = open_prompt_memory()
    memory.hold("acct_big", 2 * PROMPT_BYTES // 3)
    receive = arriving(then="nothing")
    assert await refusal(receive, announcing(1_000_000), memory, "acct_big") is Reason.SATURATED
    # A small one needs none.
    small = bytes(UNCHARGED_BYTES)
    assert await read(arriving(small), announcing(len(small)), memory, "acct_big") == small


async def test_upload_that_stands_still_is_given_up_before_its_time() -> None:
    async with asyncio.timeout(30):
        refused = await refusal(arriving(b"hel", then="nothing"), announcing(5), timeout_s=3600, within_s=0.05)
        assert refused is Reason.BODY_TIMEOUT


async def test_compressed_bodies_are_refused() -> None:
    headers: Headers = [(b"content-encoding", b"gzip")]
    assert await refusal(arriving(b"hello"), {"headers": headers}) is Reason.ENCODING_NOT_SUPPORTED


def test_length_is_told_by_its_header_or_not_at_all() -> None:
    assert announced_bytes({"headers": [(b"host", b"test"), (b"content-length", b"17")]}) == 17
    assert announced_bytes({"headers": [(b"transfer-encoding", b"chunked")]}) is None
