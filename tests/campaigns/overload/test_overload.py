"""The short form of `make overload`: a router before a real server, on default settings. The edge's own gate is tested
on a clock that does not depend on the machine."""

import asyncio
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.grounding.documents.intake import BY_ACCOUNT_MOST
from services.router.routes.target import MOST_WAITING
from tests.campaigns.overload.campaign import PLACES, Overloaded
from tests.campaigns.overload.clients import Tally
from tests.campaigns.overload.documents import (
    ATTACKER,
    SIZE_BYTES,
    router_memory_bytes,
    run_flood,
    run_slow_documents,
)
from tests.services.router.harness import QUESTION, Router, running_router, target
from tests.support.servers.router_process import running_router_process
from tests.support.upstreams.openai import Recorded, Reply, Upstream

KEYS = 8
USUAL = Reply()
THINKS = Reply(first_event_delay_s=1.5)
ASKED_TO_WAIT = Reply(status=429, headers={"retry-after": "20"})
EXPENSIVE = b'[{"role": "user", "content": "Something expensive"}]'


async def ask(
    router: Router, key_id: str, tally: Tally, *, account_id: str = "", messages_json: bytes = QUESTION
) -> None:
    try:
        await router.ask(messages_json, key_id=key_id, account_id=account_id)
        tally.served += 1
    except LegatoError as error:
        tally.refused += error.reason is Reason.SATURATED
        tally.failed += error.reason is not Reason.SATURATED


async def ask_many(router: Router, upstream: Upstream, replies: list[Reply]) -> Tally:
    """One after the other, whatever became of those before."""
    tally = Tally()
    async with asyncio.TaskGroup() as asked:
        for number, reply in enumerate(replies):
            upstream.replies.append(reply)
            asked.create_task(ask(router, f"key {number % KEYS}", tally))
            await asyncio.sleep(0.01)
    return tally


async def test_no_chat_is_refused_because_a_provider_without_a_limit_thinks(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        for replies in ([USUAL] * 60, [USUAL, THINKS] * 60, [USUAL] * 60, [THINKS] * 40):
            assert await ask_many(router, upstream, replies) == Tally(served=len(replies))
        # And those that go on for long find their place after the burst.
        assert await ask_many(router, upstream, [Reply(event_delay_s=0.1)] * 8) == Tally(served=8)


async def test_key_whose_chats_begin_slowly_does_not_have_others_refused(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        slow, others = Tally(), Tally()
        upstream.default_reply = THINKS
        async with asyncio.TaskGroup() as asked:
            for _ in range(40):
                asked.create_task(ask(router, "slow", slow))
            await upstream.received(40)
            upstream.default_reply = USUAL
            for number in range(80):
                asked.create_task(ask(router, f"key {number % KEYS}", others))
        assert (slow, others) == (Tally(served=40), Tally(served=80))


@pytest.mark.parametrize("retry_after", ["", "30"])
async def test_all_are_admitted_once_the_server_no_longer_says_that_it_is_full(
    retry_after: str, socket_folder: Path, log: Log
) -> None:
    full = Reply(status=429, headers={"retry-after": retry_after} if retry_after else {})
    async with Upstream(full) as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        assert (await ask_many(router, upstream, [full] * 20)).refused == 20
        upstream.replies.clear()
        upstream.default_reply = USUAL
        # The first that comes finds out.
        assert await ask_many(router, upstream, [USUAL]) == Tally(served=1)
        assert await ask_many(router, upstream, [USUAL] * 40) == Tally(served=40)


class Choosy(Upstream):
    """Refuses the prompts of one customer as too many, and serves all others without a limit."""

    def reply_to(self, recorded: Recorded) -> Reply:
        return ASKED_TO_WAIT if b"expensive" in recorded.body else super().reply_to(recorded)


async def ask_for_too_much(router: Router, key_id: str, tally: Tally, account_id: str = "choosy") -> None:
    await ask(router, key_id, tally, account_id=account_id, messages_json=EXPENSIVE)


async def test_one_customers_refused_prompts_do_not_have_others_refused(socket_folder: Path, log: Log) -> None:
    async with Choosy() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        refused, others = Tally(), Tally()
        async with asyncio.TaskGroup() as asked:
            for number in range(200):
                # With several keys, of which none is ever served.
                asked.create_task(ask_for_too_much(router, f"expensive {number % 5}", refused))
                asked.create_task(ask(router, f"key {number % KEYS}", others, account_id=f"{number % KEYS}"))
                await asyncio.sleep(0.005)
        assert others == Tally(served=200)
        assert refused == Tally(refused=200)


@pytest.mark.parametrize("key_id", ["refused", "another"])
async def test_burst_after_a_refusal_while_idle_is_served(key_id: str, socket_folder: Path, log: Log) -> None:
    async with Choosy(THINKS) as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        refused, burst = Tally(), Tally()
        await ask_for_too_much(router, "refused", refused)
        async with asyncio.TaskGroup() as asked:
            for _ in range(40):
                asked.create_task(ask(router, key_id, burst))
        assert (refused, burst) == (Tally(refused=1), Tally(served=40))


async def test_hundred_streams_after_an_unrelated_refusal_are_served(socket_folder: Path, log: Log) -> None:
    async with Choosy() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.default_reply = Reply(first_event_delay_s=0.5, event_delay_s=0.2)
        for _ in range(3):
            refused, streams = Tally(), Tally()
            await ask_for_too_much(router, "refused", refused)
            async with asyncio.TaskGroup() as asked:
                for number in range(100):
                    asked.create_task(ask(router, f"key {number % KEYS}", streams))
            assert (refused, streams) == (Tally(refused=1), Tally(served=100))


async def test_provider_that_refuses_everybody_is_left_alone_until_it_accepts_a_chat(
    socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(ASKED_TO_WAIT) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        tally = Tally()
        for number in range(20):
            await ask(router, f"key {number}", tally, account_id=f"account {number}")
        asked_before = len(upstream.requests)
        # A burst of customers that it has not refused yet: only probes reach it.
        async with asyncio.TaskGroup() as asked:
            for number in range(100):
                asked.create_task(ask(router, f"new {number}", tally, account_id=f"new {number}"))
        assert tally == Tally(refused=120)
        assert len(upstream.requests) - asked_before < 50
        upstream.default_reply = USUAL
        assert (await router.ask(key_id="first")).text
        assert await ask_many(router, upstream, [USUAL] * 100) == Tally(served=100)


@pytest.mark.long
async def test_documents_of_one_account_take_neither_the_routers_memory_nor_the_others_turns(
    socket_folder: Path,
) -> None:
    """The kernel gives the router as much memory as the manifest does."""
    async with running_router_process(socket_folder, router_memory_bytes()) as router:
        idle_bytes = router.peak_bytes
        flood = await run_flood(router, [ATTACKER], uploads=110, others=2)
        assert flood.violations == []
        assert (flood.opened, flood.refused) == (BY_ACCOUNT_MOST, 110 - BY_ACCOUNT_MOST)
        assert (flood.added, flood.noted) == (2, 2)
        # Not a copy of each of those that are open, and far from its limit.
        assert flood.peak_bytes - idle_bytes < flood.opened * SIZE_BYTES
        slow = await run_slow_documents(router, documents=4, others=2)
        assert slow.violations == []
        assert (slow.added, slow.noted) == (2, 2)


def test_what_breaks_the_promise_is_told() -> None:
    good = Tally(served=100, refused=200, times_s=[0.8] * 100)
    assert Overloaded("gauge", 20, 60, 19.5, good).violations == []
    assert Overloaded("gauge", 20, 60, 18, good).violations == ["gauge: goodput is 90% of the peak"]
    late = Tally(served=100, failed=1, times_s=[20.0] * 100)
    assert Overloaded("gauge", 20, 60, 20, late).violations == ["gauge: p99 is 20.0 s", "gauge: 1 chats failed"]
    assert PLACES > MOST_WAITING
