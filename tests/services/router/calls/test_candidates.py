"""Models that fail again and again: who is asked in their place, how often, and when they are tried again."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.router.calls.fallback import LEAST_RETRIES, RETRY_SHARE
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.providers.base import Timeouts
from services.router.settings import MOST_ATTEMPTS
from tests.services.router.harness import FIVE_CACHE_MARKS, Router, as_json, refusal_of, running_router, target
from tests.support.leftovers import nothing_is_left
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.openai import Reply, Upstream

BROKEN = Reply(status=500)


async def attempt_of(router: Router) -> int:
    answer = await router.ask()
    assert answer.text == "Hello, world!"
    return answer.responses[0].started.attempt


async def test_failing_model_is_passed_over_until_it_answers_again(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(BROKEN) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        served_by = [await attempt_of(router) for _ in range(FAILURES_IN_A_ROW + 3)]
        assert served_by == [2] * FAILURES_IN_A_ROW + [1] * 3
        assert len(first.requests) == FAILURES_IN_A_ROW
        first.default_reply = Reply()
        async with asyncio.timeout(60):
            while len(first.requests) == FAILURES_IN_A_ROW:
                assert await attempt_of(router) == 1
        asked = len(second.requests)
        assert [await attempt_of(router) for _ in range(5)] == [1] * 5
        assert len(second.requests) == asked


@pytest.mark.parametrize("reply", [BROKEN, Reply(cut_after=0), Reply(cut_after=1)], ids=["refuses", "breaks", "stops"])
async def test_chat_whose_first_model_failed_leaves_nothing_to_the_collector_of_garbage(
    reply: Reply, socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream() as first,
        Upstream() as second,
        # One whose window is too small comes before both.
        running_router(
            socket_folder, log, {target("small", 10): first, target("first"): first, target("second"): second}
        ) as router,
    ):

        async def ask_both() -> None:
            first.replies.append(reply)
            assert await attempt_of(router) == 2
            # So that it is asked first the next time as well.
            assert await attempt_of(router) == 1

        await ask_both()
        async with nothing_is_left():
            for _ in range(3):
                await ask_both()


async def test_request_that_only_the_model_that_fails_could_take_is_no_mistake_of_the_client(
    socket_folder: Path, log: Log
) -> None:
    """A client told so would give up, or shorten what fits."""
    long = as_json([{"role": "user", "content": "word " * 5000}])
    async with (
        Upstream(BROKEN) as large,
        Upstream() as small,
        running_router(socket_folder, log, {target("large"): large, target("small", 2000, 100): small}) as router,
    ):
        assert (await refusal_of(router, messages_json=long)).reason is Reason.UPSTREAM_FAILED
        large.default_reply = Reply()
        assert (await router.ask(long)).text == "Hello, world!"


async def test_what_only_the_model_that_fails_can_do_is_no_mistake_of_the_client(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(BROKEN) as first,
        AnthropicUpstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        assert (await refusal_of(router, messages_json=FIVE_CACHE_MARKS)).reason is Reason.UPSTREAM_FAILED


async def test_request_that_no_model_wants_is_told_apart_from_a_model_that_fails(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.replies.append(Reply(status=400))
        assert (await refusal_of(router)).reason is Reason.UPSTREAM_REFUSED


async def test_only_model_of_a_class_is_asked_however_often_it_has_failed(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.default_reply = BROKEN
        for _ in range(3 * FAILURES_IN_A_ROW):
            assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED
        upstream.default_reply = Reply()
        assert await attempt_of(router) == 1


async def test_model_that_is_passed_over_is_asked_when_the_others_fail(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(BROKEN) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        for _ in range(FAILURES_IN_A_ROW):
            await attempt_of(router)
        first.default_reply = Reply()
        second.replies.append(BROKEN)
        assert await attempt_of(router) == 2
        assert len(first.requests) == FAILURES_IN_A_ROW + 1


async def test_model_that_is_passed_over_is_not_asked_for_want_of_room_elsewhere(socket_folder: Path, log: Log) -> None:
    async with Upstream(BROKEN) as first, Upstream() as second:
        targets = {target("first"): first, replace(target("second"), concurrency=1): second}
        async with running_router(socket_folder, log, targets) as router:
            for _ in range(FAILURES_IN_A_ROW):
                await attempt_of(router)
            second.replies.append(Reply(stall_after=2))
            running = router.open()
            assert await running.receive()
            assert (await refusal_of(router)).reason is Reason.SATURATED
            assert len(first.requests) == FAILURES_IN_A_ROW
            running.cancel()


async def test_no_chat_is_sent_to_more_models_than_the_most(socket_folder: Path, log: Log) -> None:
    async with Upstream(BROKEN) as first, Upstream(BROKEN) as second, Upstream(BROKEN) as third, Upstream() as fourth:
        upstreams = (first, second, third, fourth)
        targets = {target(f"model-{number}"): upstream for number, upstream in enumerate(upstreams)}
        async with running_router(socket_folder, log, targets) as router:
            assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED
        assert [len(upstream.requests) for upstream in upstreams] == [1] * MOST_ATTEMPTS + [0]


async def test_models_that_fail_are_not_asked_once_more_for_every_chat(socket_folder: Path, log: Log) -> None:
    chats = 20
    async with (
        Upstream(BROKEN) as first,
        Upstream(BROKEN) as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        for _ in range(FAILURES_IN_A_ROW):
            await refusal_of(router)
        asked = len(second.requests)
        # All have been asked before the first of them fails.
        first.default_reply = delayed(BROKEN, 1)
        second.default_reply = delayed(BROKEN, 60)
        waiting = [asyncio.create_task(refusal_of(router)) for _ in range(chats)]
        tried_again = max(LEAST_RETRIES, int(RETRY_SHARE * chats))
        while sum(chat.done() for chat in waiting) < chats - tried_again:
            await asyncio.wait([chat for chat in waiting if not chat.done()], return_when=asyncio.FIRST_COMPLETED)
        assert {chat.result().reason for chat in waiting if chat.done()} == {Reason.UPSTREAM_FAILED}
        # And one more, should the pause be over by now.
        assert len(second.requests) <= asked + tried_again + 1
        for chat in waiting:
            chat.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_retries_that_are_over_make_room_for_others(socket_folder: Path, log: Log) -> None:
    chats = FAILURES_IN_A_ROW + 3 * LEAST_RETRIES
    async with (
        Upstream(BROKEN) as first,
        Upstream(BROKEN) as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        for _ in range(chats):
            assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED
        assert len(first.requests) == chats
        # Until it is known to fail, it is asked twice.
        assert chats < len(second.requests) < chats + FAILURES_IN_A_ROW


async def test_model_that_answers_takes_over_every_chat_of_one_that_dies(socket_folder: Path, log: Log) -> None:
    async with Upstream(delayed(BROKEN, 0.5)) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            answers = await asyncio.gather(*(router.ask() for _ in range(50)))
        assert [answer.text for answer in answers] == ["Hello, world!"] * 50


@pytest.mark.parametrize("stream", [True, False])
async def test_model_may_have_less_time_to_begin_than_others(stream: bool, socket_folder: Path, log: Log) -> None:
    async with Upstream(delayed(Reply(), 60)) as hasty, Upstream(delayed(Reply(), 1)) as patient:
        targets = {
            replace(target("hasty"), timeouts=Timeouts(first_byte_s=0.2, whole_s=0.2)): hasty,
            target("patient"): patient,
        }
        async with running_router(socket_folder, log, targets) as router:
            assert (await router.ask(stream=stream)).text == "Hello, world!"
        assert len(hasty.requests) == 1


def delayed(reply: Reply, delay_s: float) -> Reply:
    return Reply(status=reply.status, delay_s=delay_s)
