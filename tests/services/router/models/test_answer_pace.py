"""Short answers of models that write quickly are asked for whole, and no others."""

from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import Grant
from services.chassis.telemetry.log import Log
from services.router.models import circuit_breaker
from services.router.models.answer_pace import LEAST_TOKEN_S, NOT_WHOLE_AFTER_S, WHOLE_WITHIN_S, AnswerPace
from tests.services.router.harness import Router, read, running_router, target
from tests.support.upstreams.openai import Reply, Upstream

WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten"]
ANSWER = Reply(contents=WORDS, usage={"prompt_tokens": 11, "completion_tokens": 10, "total_tokens": 21})


def pace_of(first_token_s: float, token_s: float) -> AnswerPace:
    pace = AnswerPace()
    pace.record_streamed(first_token_s, first_token_s + 100 * token_s, 100)
    return pace


def test_answer_is_short_if_it_will_be_here_soon() -> None:
    # A hosted model of 50 tokens a second, and one on a processor.
    assert pace_of(0.5, 0.02).whole_answer_s(300) == pytest.approx(6.5)
    assert pace_of(0.5, 0.02).whole_answer_s(400) is None
    assert pace_of(0.5, 0.1).whole_answer_s(64) == pytest.approx(6.9)
    assert pace_of(0.5, 0.1).whole_answer_s(256) is None


def test_model_that_thinks_is_never_asked_for_a_whole_answer() -> None:
    assert pace_of(10.0, 0.02).whole_answer_s(16) is None


def test_nothing_is_known_of_a_model_that_has_said_little() -> None:
    pace = AnswerPace()
    pace.record_streamed(0.1, 0.1, 7)
    assert pace.whole_answer_s(1) is None


def test_long_answer_is_streamed_however_quickly_short_ones_came() -> None:
    assert pace_of(0.0, 0.0).whole_answer_s(int(WHOLE_WITHIN_S / LEAST_TOKEN_S) + 1) is None


def test_slower_answer_is_believed_at_once_and_faster_ones_by_and_by() -> None:
    pace = pace_of(0.1, 0.02)
    pace.record_streamed(0.1, 20.1, 100)
    assert pace.whole_answer_s(100) is None
    answers = 0
    while pace.whole_answer_s(100) is None:
        pace.record_streamed(0.1, 2.1, 100)
        answers += 1
    assert 5 < answers < 20


def test_whole_answer_that_took_too_long_has_the_next_ones_streamed() -> None:
    pace = pace_of(0.1, 0.01)
    pace.record_whole(NOT_WHOLE_AFTER_S - 1)
    assert pace.whole_answer_s(100) is not None
    pace.record_whole(NOT_WHOLE_AFTER_S + 1)
    assert pace.whole_answer_s(100) is None


def streams(upstream: Upstream) -> list[bool]:
    return [upstream.wants_stream(request) for request in upstream.requests]


async def test_short_answer_is_asked_for_whole_once_the_model_is_known(router: Router, upstream: Upstream) -> None:
    upstream.default_reply = ANSWER
    answers = [await router.ask(stream=False, max_tokens=256) for _ in range(2)]
    assert streams(upstream) == [True, False]
    first, second = answers
    assert first.text == second.text == "".join(WORDS)
    assert first.finished.usage == second.finished.usage


async def test_every_other_answer_is_streamed(router: Router, upstream: Upstream) -> None:
    upstream.default_reply = ANSWER
    await router.ask(stream=False, max_tokens=256)
    await router.ask(stream=True, max_tokens=256)
    await router.ask(stream=False)
    # The credit does not cover all of it yet.
    await read(router.open(stream=False, max_tokens=256, grant=Grant(prompt_tokens=500, output_tokens=100)))
    assert streams(upstream) == [True] * 4


async def test_whole_answers_do_not_count_as_times_to_a_first_token(router: Router, upstream: Upstream) -> None:
    upstream.default_reply = ANSWER
    for _ in range(3):
        await router.ask(stream=False, max_tokens=256)
    breaker = router.model_states.by_class["forte"].all[0].breaker
    assert (breaker.answers, len(breaker.last_latencies_s)) == (3, 1)


async def test_model_that_is_silent_over_a_short_answer_is_left_like_one_without_a_first_token(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "LEAST_FIRST_TOKEN_S", 0.2)
    async with Upstream(ANSWER) as first, Upstream() as second:
        first.replies += [ANSWER, Reply(delay_s=60), ANSWER]
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            texts = [(await router.ask(stream=False, max_tokens=256)).text for _ in range(3)]
    assert texts == ["".join(WORDS), "Hello, world!", "".join(WORDS)]
    # It may have become slow.
    assert streams(first) == [True, False, True]


@pytest.mark.parametrize(
    "broken",
    [Reply(body='{"choices":[{"message"', content_type="application/json"), Reply(finish_reason="error")],
    ids=["cut", "failed"],
)
async def test_short_answer_that_breaks_is_had_from_the_next_model(
    broken: Reply, socket_folder: Path, log: Log
) -> None:
    async with Upstream(ANSWER) as first, Upstream() as second:
        first.replies += [ANSWER, broken]
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            texts = [(await router.ask(stream=False, max_tokens=256)).text for _ in range(2)]
    assert texts == ["".join(WORDS), "Hello, world!"]
