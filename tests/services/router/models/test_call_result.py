"""What observers of calls learn: each result once, however the call ends."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.router.models.call_result import BASELINE, CallEnd, FailedCall
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.providers.base import Failure
from tests.services.router.harness import QUICK, Router, read, running_router, target
from tests.services.router.recorded_calls import RecordedCalls
from tests.support.upstreams.continuing import ContinuingUpstream, Cut, Script
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import until

FIRST, SECOND = target("first"), target("second")
MODES = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture
def calls() -> RecordedCalls:
    return RecordedCalls()


@MODES
async def test_answer_is_one_result_with_its_usage_and_times(
    stream: bool, calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {FIRST: upstream}, observers=[calls]) as router,
    ):
        answer = await router.ask(stream=stream, max_tokens=50)
    [(plan, result)] = calls.ended
    assert calls.fallbacks == []
    assert (plan.class_id, plan.target, plan.role, plan.max_tokens) == ("forte", FIRST, BASELINE, 50)
    assert result.answer.finished is not None
    assert (result.end, result.answer.finished.usage) == (CallEnd.ANSWERED, answer.finished.usage)
    assert result.first_token_s is not None
    assert result.first_token_s <= result.duration_s
    assert (result.failure, result.is_whole) == (None, not stream)


@MODES
@pytest.mark.parametrize(
    ("reply", "end", "failure"),
    [
        (Reply(status=500), CallEnd.FAILED, Failure.PROVIDER),
        (Reply(delay_s=60), CallEnd.FAILED, Failure.PROVIDER),
        (Reply(status=429), CallEnd.DECLINED, Failure.BUSY),
        (Reply(status=400, body='{"error": {"message": "no"}}'), CallEnd.DECLINED, Failure.REFUSED),
    ],
    ids=["fails", "is silent", "is full", "refuses"],
)
async def test_call_that_fails_before_its_first_byte_is_a_result_and_the_next_knows_it(
    reply: Reply,
    end: CallEnd,
    failure: Failure,
    stream: bool,
    calls: RecordedCalls,
    socket_folder: Path,
    log: Log,
) -> None:
    async with (
        Upstream(reply) as first,
        Upstream() as second,
        running_router(socket_folder, log, {FIRST: first, SECOND: second}, QUICK, observers=[calls]) as router,
    ):
        await router.ask(stream=stream)
    assert calls.ends == [("first", end), ("second", CallEnd.ANSWERED)]
    (failed, result), (answered, _) = calls.ended
    assert (result.failure, result.first_token_s, result.is_repeated) == (failure, None, False)
    assert (failed.failed_before, answered.failed_before) == ((), (FailedCall(BASELINE, failure),))
    assert calls.fallbacks == [answered]


async def test_call_that_is_made_again_without_a_parameter_is_a_result_of_its_own(
    calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    refuses = Reply(status=400, body='{"error": {"message": "Unsupported parameter: \'seed\'."}}')
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {FIRST: upstream}, observers=[calls]) as router,
    ):
        upstream.replies.append(refuses)
        await router.ask(parameters_json=b'{"seed": 7}')
    assert calls.ends == [("first", CallEnd.DECLINED), ("first", CallEnd.ANSWERED)]
    assert [(result.is_repeated, plan.failed_before) for plan, result in calls.ended] == [(True, ()), (False, ())]


async def test_answer_of_nothing_ends_when_another_is_passed_on(
    calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(Reply(contents=[])) as first,
        Upstream() as second,
        running_router(socket_folder, log, {FIRST: first, SECOND: second}, observers=[calls]) as router,
    ):
        assert (await router.ask()).text == "Hello, world!"
    assert sorted(calls.ends) == [("first", CallEnd.EMPTY), ("second", CallEnd.ANSWERED)]


@pytest.mark.parametrize(
    ("reply", "end"),
    [(Reply(first_event_delay_s=3600), CallEnd.GIVEN_UP), (Reply(stall_after=2), CallEnd.LEFT)],
    ids=["before its first byte", "in its middle"],
)
async def test_call_whose_client_leaves_is_one_result(
    reply: Reply, end: CallEnd, calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(reply) as upstream,
        running_router(socket_folder, log, {FIRST: upstream}, observers=[calls]) as router,
    ):
        call = router.open()
        await upstream.received(1)
        if end is CallEnd.LEFT:
            while (response := await call.receive()) is not None and not response.contents:
                pass
        call.cancel()
        await until(lambda: bool(calls.ended))
    assert calls.ends == [("first", end)]
    [(_, result)] = calls.ended
    assert (result.failure, result.answer.finished) == (None, None)


@MODES
async def test_answer_that_breaks_off_is_one_result(
    stream: bool, calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(Reply(cut_after=2)) as upstream,
        running_router(socket_folder, log, {FIRST: upstream}, observers=[calls]) as router,
    ):
        with pytest.raises(LegatoError):
            await router.ask(stream=stream)
    # A whole answer that breaks off has not begun for the client, and is asked for once more.
    expected = [("first", CallEnd.CUT)] if stream else [("first", CallEnd.FAILED)] * 2
    assert calls.ends == expected
    assert [result.failure for _, result in calls.ended] == [Failure.PROVIDER] * len(expected)


async def test_each_call_of_an_answer_that_goes_on_elsewhere_is_a_result_with_its_own_usage(
    calls: RecordedCalls, socket_folder: Path, log: Log
) -> None:
    able = [replace(each, continues=PrefixStyle.LAST_MESSAGE) for each in (FIRST, SECOND)]
    async with (
        ContinuingUpstream() as upstream,
        running_router(socket_folder, log, dict.fromkeys(able, upstream), observers=[calls]) as router,
    ):
        upstream.script = Script([f" word{number}" for number in range(30)])
        upstream.script.cuts.append(Cut("closed", 0.5))
        answer = await router.ask()
    assert answer.text == upstream.script.text
    assert calls.ends == [("first", CallEnd.CUT), ("second", CallEnd.ANSWERED)]
    (_, cut), (_, whole) = calls.ended
    assert cut.answer.finished is None
    assert whole.answer.finished is not None
    # Of this call alone, while the client pays for the whole text.
    assert 0 < whole.answer.finished.usage.completion_tokens < answer.finished.usage.completion_tokens
    assert whole.answer.comparable_tokens is None


async def test_every_observer_learns_of_every_call(socket_folder: Path, log: Log) -> None:
    both = RecordedCalls(), RecordedCalls()
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {FIRST: upstream}, observers=both) as router,
    ):
        await _ask_often(router, upstream)
        [model] = router.model_states.by_class["forte"].all
        assert both[0].ends == both[1].ends
        assert len(both[0].ended) == len(upstream.requests) == model.breaker.attempts
        assert model.breaker.answers == both[0].ends.count(("first", CallEnd.ANSWERED))
        assert model.spending.tokens["output"] == sum(
            result.answer.finished.usage.completion_tokens
            for _, result in both[0].ended
            if result.answer.finished is not None
        )


async def _ask_often(router: Router, upstream: Upstream) -> None:
    for reply in (Reply(), Reply(status=500), Reply(status=429), Reply(usage=None), Reply()):
        upstream.replies.append(reply)
        try:
            await read(router.open())
        except LegatoError:
            upstream.replies.clear()
