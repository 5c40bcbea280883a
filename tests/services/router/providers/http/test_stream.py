"""Chunks that are relayed in the callback of their read: from the provider's bytes to the items of the exchange."""

import asyncio
from collections.abc import Callable

import pytest

from legato_protos.router.v1.router_pb2 import Grant
from services.chassis.exchange.outbox import WINDOW_BYTES
from services.chassis.http_client.connection import READ_AHEAD_BYTES
from services.router.prompts.tokens import SLICE_CHARACTERS
from services.router.providers.base import ProviderError, Timeouts
from tests.services.router.providers.http.relayed_chat import DONE, Chat, a_chat, chunk, framed
from tests.support.python_calls import count_calls
from tests.support.waiting import until

MOST_CALLS_A_CHUNK = 20


async def test_an_ordinary_chunk_is_in_the_outbox_when_its_read_returns_and_wakes_no_task() -> None:
    async with a_chat() as (chat, _):
        waiter = chat.connection._waiter
        for number in range(20):
            chat.receive(chunk(f"{number} "))
            assert chat.contents[-1] == f"{number} "
            # The same future is still waited for: none was created, and no task was woken.
            assert chat.connection._waiter is waiter
            assert waiter is not None
            assert not waiter.done()
        assert chat.queued()[-1].output_tokens == chat.relay.output_tokens > 20
        assert chat.woken == 0


async def test_chunks_of_one_read_are_one_item() -> None:
    async with a_chat() as (chat, _):
        items = len(chat.queued())
        chat.receive(b"".join(chunk(f"{number} ") for number in range(100)))
        assert len(chat.queued()) == items + 1
        assert len(chat.queued()[-1].contents) == 100


async def test_half_an_event_wakes_no_task() -> None:
    async with a_chat() as (chat, _):
        waiter, event = chat.connection._waiter, chunk("whole")
        chat.receive(event[:10])
        assert chat.contents == ["first"]
        chat.receive(event[10:])
        assert chat.contents == ["first", "whole"]
        assert chat.connection._waiter is waiter


async def test_the_end_wakes_the_task() -> None:
    async with a_chat() as (chat, task):
        chat.receive(chunk("last"))
        chat.receive(DONE)
        chat.connection.eof_received()
        await until(task.done)
        assert chat.contents == ["first", "last"]
        assert chat.queued()[-1].finished.finish_reason == "stop"


async def test_order_is_kept_between_chunks_that_are_taken_and_chunks_that_wait() -> None:
    async with a_chat() as (chat, _):
        take = chat.relay.take
        chat.relay.take = lambda piece: int(piece.contents[0]) % 3 != 0 and take(piece)  # type: ignore[method-assign]
        for number in range(60):
            chat.receive(chunk(str(number)))
            for _ in range(number % 4):
                await asyncio.sleep(0)
        await until(lambda: len(chat.contents) == 61)
        assert chat.contents[1:] == [str(number) for number in range(60)]
        assert 0 < chat.woken < 60


async def test_reading_pauses_while_the_edge_gives_no_credit_and_goes_on_when_it_does() -> None:
    async with a_chat() as (chat, _):
        chat.call.add_credit(-WINDOW_BYTES)
        chat.receive(chunk("waits"))
        assert chat.contents == ["first"]
        await until(lambda: chat.call._credited is not None)
        sent = 0
        while not chat.transport.is_paused:
            chat.receive(chunk("x" * 1000))
            sent += 1
        assert sent <= 2 + READ_AHEAD_BYTES // 1000
        assert chat.contents == ["first"]
        chat.call.add_credit(WINDOW_BYTES)
        await until(lambda: len(chat.contents) == 2 + sent and chat.is_waiting)
        assert chat.contents[1] == "waits"
        await until(lambda: not chat.transport.is_paused)
        woken = chat.woken
        chat.receive(chunk("again"))
        assert chat.contents[-1] == "again"
        assert chat.woken == woken


async def test_a_cancelled_chat_takes_nothing_more_and_closes_its_connection() -> None:
    async with a_chat() as (chat, task):
        chat.receive(chunk("before"))
        task.cancel()
        chat.receive(chunk("after"))
        assert chat.contents == ["first", "before"]
        await asyncio.gather(task, return_exceptions=True)
        assert chat.transport.is_aborted
        assert chat.contents == ["first", "before"]


async def test_the_idle_timeout_restarts_with_every_chunk() -> None:
    async with a_chat() as (chat, _):
        deadline = chat.connection._deadline
        before_s = deadline.at_s
        await until(lambda: asyncio.get_running_loop().time() > before_s - Timeouts().idle_s + 0.01)
        chat.receive(chunk("more"))
        assert deadline.at_s > before_s
        assert deadline in deadline._timeouts.running


async def test_an_ordinary_chunk_takes_few_function_calls() -> None:
    """As many as this are two thirds of what the router spends on a chunk."""
    async with a_chat() as (chat, _):
        chat.relay._send_packed = chat.call.send_packed
        await chat.outbox.next_message()
        chunks = [chunk("one"), chunk(" two"), chunk(" three")]
        calls = [count_calls(lambda: chat.receive(data)) for data in chunks]  # noqa: B023 - called at once
        assert chat.relay.output_tokens == 4
        assert max(calls) <= MOST_CALLS_A_CHUNK


def _nothing(chat: Chat) -> None:
    pass


def _no_room(chat: Chat) -> None:
    chat.call.add_credit(-WINDOW_BYTES)


# What arrives, and how a chat is before it.
WAITS: dict[str, tuple[bytes, Callable[[Chat], None], Grant | None]] = {
    "the credit may end": (chunk("x" * 80), _nothing, Grant(prompt_tokens=10, output_tokens=120)),
    "it is long": (chunk("x" * (SLICE_CHARACTERS + 1)), _nothing, None),
    "there is no room": (chunk("x"), _no_room, None),
    "it is the last": (DONE, _nothing, None),
}


@pytest.mark.parametrize("is_chunked", [False, True], ids=["parsed", "unparsed"])
@pytest.mark.parametrize("why", WAITS)
async def test_a_chunk_for_which_something_is_awaited_is_left_to_the_task_uncounted(why: str, is_chunked: bool) -> None:
    data, prepare, grant = WAITS[why]
    async with a_chat(grant, is_chunked=is_chunked) as (chat, _):
        prepare(chat)
        tokens, items = chat.relay.output_tokens, len(chat.queued())
        chat.receive(framed(data) if is_chunked else data)
        assert (chat.relay.output_tokens, len(chat.queued())) == (tokens, items)
        assert not chat.is_waiting
        await until(lambda: chat.woken == 1)


async def test_credit_is_requested_ahead_and_chunks_that_it_covers_do_not_wait_meanwhile() -> None:
    async with a_chat(Grant(prompt_tokens=10, output_tokens=100)) as (chat, _):
        chat.receive(chunk(" a" * 60))
        await until(lambda: any(response.HasField("need") for response in chat.queued()) and chat.is_waiting)
        woken = chat.woken
        chat.receive(chunk(" b"))
        assert chat.contents[-1] == " b"
        assert chat.woken == woken


async def test_an_error_in_the_callback_is_raised_in_the_task() -> None:
    async with a_chat() as (chat, task):

        def fail(_: object) -> bool:
            raise ProviderError("broke")

        chat.relay.take = fail  # type: ignore[assignment,method-assign]
        chat.receive(chunk("x"))
        with pytest.raises(ProviderError, match="broke"):
            await task
        assert chat.transport.is_aborted
