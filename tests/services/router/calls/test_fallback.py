"""Models that have no room, fail or are silent: who is asked in their place, and what the client is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.router.calls.fallback import LEAST_RETRIES, RETRY_SHARE, RetryBudget
from services.router.calls.search import LONGEST_RETRY_WAIT_S
from services.router.models.backoff import LEAST_PROBES, LONGEST_BACKOFF_S, MOST_PROBES
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.routes.class_route import in_order
from tests.services.router.harness import QUICK, Call, Router, read, refusal_of, running_router, target
from tests.support.upstreams.openai import Reply, Upstream

BROKEN = Reply(status=500)
STALLED = Reply(stall_after=2)
TWO = 2


@asynccontextmanager
async def router_with_room_for_two(folder: Path, log: Log, *upstreams: Upstream) -> AsyncIterator[Router]:
    targets = {
        replace(target(f"model-{number}"), concurrency=TWO): upstream for number, upstream in enumerate(upstreams)
    }
    async with running_router(folder, log, targets) as router:
        yield router


async def open_running(router: Router, upstream: Upstream, key_id: str = "greedy") -> Call:
    """A chat whose answer has begun and does not end by itself."""
    upstream.replies.append(Reply(contents=["Hello"], stall_after=2))
    call = router.open(key_id=key_id)
    assert await call.receive()
    return call


async def test_saturated_model_is_passed_over_for_the_next_of_its_class(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream() as first,
        Upstream() as second,
        router_with_room_for_two(socket_folder, log, first, second) as router,
    ):
        for _ in range(TWO):
            await open_running(router, first)
        assert (await router.ask(key_id="greedy")).text == "Hello, world!"
        assert (len(first.requests), len(second.requests)) == (TWO, 1)


async def test_where_all_models_are_saturated_nothing_is_sent_and_the_client_may_retry(
    socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream() as first,
        Upstream() as second,
        router_with_room_for_two(socket_folder, log, first, second) as router,
    ):
        for upstream in (first, first, second, second):
            await open_running(router, upstream)
        refusal = await refusal_of(router, key_id="greedy")
        assert (refusal.reason, refusal.wire.http_status, refusal.wire.type) == (
            Reason.SATURATED,
            429,
            "rate_limit_error",
        )
        assert refusal.retry_after_s is not None
        assert 1 <= refusal.retry_after_s <= 10
        assert (len(first.requests), len(second.requests)) == (TWO, TWO)


async def test_running_chats_go_on_while_others_are_refused(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, router_with_room_for_two(socket_folder, log, upstream) as router:
        upstream.default_reply = Reply(contents=["Hello"], repeat=20, event_delay_s=0.05)
        running = [router.open(key_id="greedy") for _ in range(TWO)]
        await upstream.received(TWO)
        assert (await refusal_of(router, key_id="greedy")).reason is Reason.SATURATED
        answers = [await read(call) for call in running]
        assert [answer.text for answer in answers] == ["Hello" * 20] * TWO


async def test_models_that_are_all_busy_are_saturation_and_the_soonest_is_told(socket_folder: Path, log: Log) -> None:
    later, sooner = Reply(status=429, headers={"retry-after": "40"}), Reply(status=503, headers={"retry-after": "20"})
    async with Upstream(later) as first, Upstream(sooner) as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            refusal = await refusal_of(router)
            assert refusal.reason is Reason.SATURATED
            assert refusal.retry_after_s == 20
            # There is no other that could serve, so one chat at a time tries them.
            second.default_reply = Reply()
            assert (await router.ask()).text == "Hello, world!"
            assert (await router.ask()).text == "Hello, world!"
        # The first stays alone now that the second serves.
        assert (len(first.requests), len(second.requests)) == (2, 3)


async def test_model_that_names_a_time_is_left_alone_while_another_serves(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(status=429, headers={"retry-after": "40"})) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            for _ in range(5):
                assert (await router.ask()).text == "Hello, world!"
        assert (len(first.requests), len(second.requests)) == (1, 5)


async def test_one_wrong_header_does_not_close_a_class_with_one_model(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.replies.append(Reply(status=429, headers={"retry-after": "3600"}))
        assert (await refusal_of(router)).retry_after_s == LONGEST_BACKOFF_S
        answers = [await router.ask() for _ in range(3)]
        answers += await asyncio.gather(*(router.ask() for _ in range(10)))
        assert [answer.text for answer in answers] == ["Hello, world!"] * 13


@asynccontextmanager
async def router_in_backoff(folder: Path, log: Log, upstream: Upstream, probed: Reply) -> AsyncIterator[Router]:
    """A router whose only model lets few probes through, of which as many as it may run wait for this reply."""
    refusals = MOST_PROBES.bit_length()
    async with running_router(folder, log, {target("main"): upstream}) as router:
        upstream.default_reply = Reply(status=503, headers={"retry-after": "60"})
        for _ in range(refusals):
            await refusal_of(router)
        upstream.default_reply = probed
        upstream.requests.clear()
        yield router


async def test_while_a_server_wants_to_be_left_alone_few_chats_at_a_time_try_it_and_the_others_wait(
    socket_folder: Path, log: Log
) -> None:
    async with Upstream() as upstream, router_in_backoff(socket_folder, log, upstream, Reply(delay_s=0.5)) as router:
        chats = [router.open() for _ in range(100)]
        async with asyncio.timeout(60):
            await upstream.received(LEAST_PROBES)
        assert len(upstream.requests) == LEAST_PROBES
        upstream.default_reply = Reply()
        assert {(await read(chat)).text for chat in chats} == {"Hello, world!"}


async def test_chats_that_wait_for_probes_are_refused_with_them(socket_folder: Path, log: Log) -> None:
    refusal = Reply(status=503, headers={"retry-after": "60"}, delay_s=0.5)
    async with Upstream() as upstream, router_in_backoff(socket_folder, log, upstream, refusal) as router:
        outcomes = await asyncio.gather(*(refusal_of(router) for _ in range(20)))
        assert {outcome.reason for outcome in outcomes} == {Reason.SATURATED}
        assert len(upstream.requests) == LEAST_PROBES


async def test_chat_takes_the_place_of_a_probe_whose_client_is_gone(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, router_in_backoff(socket_folder, log, upstream, Reply(delay_s=60)) as router:
        probes = [router.open() for _ in range(LEAST_PROBES)]
        await upstream.received(LEAST_PROBES)
        upstream.default_reply = Reply()
        waiting = asyncio.create_task(router.ask())
        for probe in probes:
            probe.cancel()
        assert (await waiting).text == "Hello, world!"


async def test_model_that_refuses_one_key_is_left_alone_by_that_key_while_another_model_serves(
    socket_folder: Path, log: Log
) -> None:
    async with Upstream() as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            first.replies.append(Reply(status=429, headers={"retry-after": "40"}))
            for key_id in ("refused", "refused", "another", "refused"):
                assert (await router.ask(key_id=key_id, account_id=key_id)).text == "Hello, world!"
        assert (len(first.requests), len(second.requests)) == (2, 3)


async def test_busy_model_that_names_no_time_is_asked_again(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.replies.append(Reply(status=429))
        refusal = await refusal_of(router)
        assert refusal.reason is Reason.SATURATED
        assert refusal.retry_after_s is not None
        assert (await router.ask()).text == "Hello, world!"


async def test_greedy_key_leaves_room_for_another(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {replace(target("main"), concurrency=6): upstream}) as router,
    ):
        await open_running(router, upstream, "small")
        greedy = [await open_running(router, upstream) for _ in range(4)]
        assert (await refusal_of(router, key_id="greedy")).reason is Reason.SATURATED
        upstream.default_reply = Reply()
        assert (await router.ask(key_id="small")).text == "Hello, world!"
        greedy[0].cancel()


def test_few_chats_have_a_few_retries() -> None:
    assert not RetryBudget(waiting=1, retries=LEAST_RETRIES - 1).is_spent
    assert RetryBudget(waiting=1, retries=LEAST_RETRIES).is_spent


def test_of_many_chats_a_share_is_tried_again_at_once() -> None:
    retries = int(RETRY_SHARE * 100)
    assert not RetryBudget(waiting=100, retries=retries - 1).is_spent
    assert RetryBudget(waiting=100, retries=retries).is_spent


async def test_class_says_how_long_the_first_token_is_waited_for(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(delay_s=60)) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(
            socket_folder, log, targets, route=replace(in_order(*targets), first_token_s=0.2)
        ) as router:
            for stream in (True, False):
                assert (await router.ask(stream=stream)).responses[0].started.attempt == 2


async def test_only_model_that_is_left_has_its_own_time(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(delay_s=60)) as first, Upstream(Reply(delay_s=0.5)) as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(
            socket_folder, log, targets, route=replace(in_order(*targets), first_token_s=0.2)
        ) as router:
            assert (await router.ask()).responses[0].started.attempt == 2


@pytest.mark.parametrize(
    ("delta", "attempt"), [('{"reasoning_content":"Hm. "}', 1), ('{"role":"assistant"}', 2)], ids=["reasoning", "role"]
)
async def test_model_is_not_left_while_it_reasons_but_while_it_only_shows_life(
    delta: str, attempt: int, socket_folder: Path, log: Log
) -> None:
    answering = '{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":"stop"}]}'
    events = [f'{{"choices":[{{"index":0,"delta":{delta}}}]}}'] * 8 + [answering]
    async with Upstream(Reply(events=events, event_delay_s=0.15)) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(
            socket_folder, log, targets, route=replace(in_order(*targets), first_token_s=0.6)
        ) as router:
            assert (await router.ask()).responses[0].started.attempt == attempt


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_answer_of_nothing_is_tried_once_at_the_next_model(stream: bool, socket_folder: Path, log: Log) -> None:
    nothing = Reply(contents=[])
    async with Upstream(nothing) as first, Upstream() as second, Upstream() as third:
        targets = {target("first"): first, target("second"): second, target("third"): third}
        async with running_router(socket_folder, log, targets) as router:
            assert (await router.ask(stream=stream)).text == "Hello, world!"
            for reply in (nothing, Reply(status=400)):
                second.default_reply = third.default_reply = reply
                answer = await router.ask(stream=stream)
                assert (answer.text, answer.finished.finish_reason) == ("", "stop")
        assert len(third.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [Reply(contents=[], finish_reason="length"), Reply(contents=[], finish_reason="content_filter")],
    ids=["length", "filter"],
)
async def test_answer_that_was_stopped_before_it_began_is_the_answer(
    reply: Reply, socket_folder: Path, log: Log
) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            assert (await router.ask()).finished.finish_reason == reply.finish_reason
        assert not second.requests


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=500),
        Reply(cut_after=1),
        Reply(contents=[], finish_reason="error"),
        Reply(status=429, headers={"retry-after-ms": "50"}),
    ],
    ids=["500", "cut", "failed", "busy for a moment"],
)
async def test_only_model_is_asked_once_more(reply: Reply, stream: bool, socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.replies.append(reply)
        assert (await router.ask(stream=stream)).text == "Hello, world!"
        assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    "reply",
    [
        Reply(status=400),
        Reply(status=401),
        Reply(status=429),
        Reply(status=429, headers={"retry-after": str(int(LONGEST_RETRY_WAIT_S) + 1)}),
        Reply(delay_s=60),
    ],
    ids=["refused", "locked out", "full", "full for long", "silent"],
)
async def test_what_would_not_be_over_is_not_repeated(reply: Reply, socket_folder: Path, log: Log) -> None:
    async with Upstream(reply) as upstream:
        async with running_router(socket_folder, log, {target("main"): upstream}, QUICK) as router:
            await refusal_of(router)
        assert len(upstream.requests) == 1


async def test_chat_is_repeated_once_and_not_by_a_client_that_is_gone(socket_folder: Path, log: Log) -> None:
    async with Upstream(BROKEN) as first, Upstream(BROKEN) as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED
            assert (len(first.requests), len(second.requests)) == (1, 2)
            call = router.open()
            await second.received(3)
            call.cancel()
            second.default_reply = Reply()
            assert (await router.ask()).text == "Hello, world!"
        assert len(second.requests) == 4


async def test_model_that_fails_all_the_time_is_not_asked_twice(socket_folder: Path, log: Log) -> None:
    async with Upstream(BROKEN) as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        for _ in range(FAILURES_IN_A_ROW):
            await refusal_of(router)
        asked = len(upstream.requests)
        await refusal_of(router)
        assert len(upstream.requests) == asked + 1
