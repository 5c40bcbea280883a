"""The memory that prompts take in a router while a model thinks."""

import asyncio
import gc
import tracemalloc
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.prompt_memory import open_prompt_memory
from services.chassis.telemetry.log import Log
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.schema.messages import BYTES_PER_OBJECT
from tests.services.router.harness import read, running_router, target
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import until

MEGABYTE = 1_000_000
# Takes room, and no time to count.
LARGE = b'[{"role": "user", "content": "Hi"}' + b" " * MEGABYTE + b"]"
THINKS = Reply(first_event_delay_s=3600)
REFUSES = Reply(status=500)


def large_blocks() -> int:
    """Returns how many blocks of at least half a prompt the router's code has allocated."""
    gc.collect()
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/services/router/*")])
    return sum(trace.size > MEGABYTE // 2 for trace in snapshot.traces)


@pytest.mark.parametrize("ordinary", [False, True], ids=["exchange", "rpc"])
async def test_prompt_that_waits_is_kept_once(ordinary: bool, socket_folder: Path, log: Log) -> None:
    async with Upstream(THINKS) as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        tracemalloc.start()
        try:
            call = router.open(LARGE, ordinary=ordinary)
            await upstream.received(1)
            await until(lambda: large_blocks() == 1)
        finally:
            tracemalloc.stop()
        call.cancel()


async def test_nothing_of_a_prompt_is_kept_once_its_answer_has_begun(socket_folder: Path, log: Log) -> None:
    memory = open_prompt_memory()
    begins = Reply(stall_after=2)
    async with (
        Upstream(begins) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}, prompt_memory=memory) as router,
    ):
        tracemalloc.start()
        try:
            call = router.open(LARGE, ordinary=True)
            while (response := await call.receive()) is not None and not response.contents:
                pass
            assert memory.used == 0
            await until(lambda: large_blocks() == 0)
        finally:
            tracemalloc.stop()
        call.cancel()


async def test_prompt_of_an_answer_that_may_go_on_is_kept_while_half_of_the_memory_is_free(
    socket_folder: Path, log: Log
) -> None:
    model = replace(target("main"), continues=PrefixStyle.LAST_MESSAGE)
    for memory_bytes, is_kept in ((3 * MEGABYTE, True), (3 * MEGABYTE // 2, False)):
        memory = open_prompt_memory(memory_bytes)
        async with (
            Upstream(Reply(stall_after=2)) as upstream,
            running_router(socket_folder, log, {model: upstream}, prompt_memory=memory) as router,
        ):
            call = router.open(LARGE, ordinary=True)
            while (response := await call.receive()) is not None and not response.contents:
                pass
            assert bool(memory.used) is is_kept
            call.cancel()
            await until(lambda memory=memory: memory.used == 0)  # type: ignore[misc]


async def test_body_is_written_again_for_a_fallback(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(REFUSES) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        answer = await router.ask(LARGE)
        assert answer.text == "Hello, world!"
        assert first.requests[0].json["messages"] == second.requests[0].json["messages"]
        assert len(second.requests[0].body) > MEGABYTE


async def test_account_with_its_share_of_memory_is_refused_and_others_are_not(socket_folder: Path, log: Log) -> None:
    memory = open_prompt_memory(6 * MEGABYTE)
    async with (
        Upstream(THINKS) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}, prompt_memory=memory) as router,
    ):
        waiting = [router.open(LARGE, account_id="greedy", ordinary=True) for _ in range(4)]
        await upstream.received(4)
        with pytest.raises(LegatoError) as refused:
            await router.ask(LARGE, account_id="greedy", ordinary=True)
        assert refused.value.reason is Reason.SATURATED
        upstream.default_reply = Reply()
        assert (await router.ask(LARGE, account_id="another", ordinary=True)).text == "Hello, world!"
        # A small prompt is never refused.
        assert (await router.ask(account_id="greedy")).text == "Hello, world!"
        for call in waiting:
            call.cancel()
        await until(lambda: memory.used == 0)


async def test_many_small_messages_are_charged_for_what_they_take(socket_folder: Path, log: Log) -> None:
    memory = open_prompt_memory()
    messages = msgspec.json.encode([{"role": "user", "content": "a"}] * 5000)
    async with (
        Upstream(THINKS) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}, prompt_memory=memory) as router,
    ):
        call = router.open(messages)
        await upstream.received(1)
        assert memory.used > 5000 * BYTES_PER_OBJECT
        call.cancel()
        await until(lambda: memory.used == 0)


@pytest.mark.parametrize("reply", [Reply(), REFUSES, Reply(cut_after=2)], ids=["answered", "refused", "broken off"])
async def test_memory_is_given_back_however_a_chat_ends(reply: Reply, socket_folder: Path, log: Log) -> None:
    memory = open_prompt_memory()
    async with (
        Upstream(reply) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}, prompt_memory=memory) as router,
    ):
        call = router.open(LARGE, ordinary=True)
        await asyncio.gather(read(call), return_exceptions=True)
        await until(lambda: memory.used == 0)
