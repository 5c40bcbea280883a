"""The length an answer may have on the credit held for it."""

import asyncio

import pytest

from edge.billing.metering import ASK_TIMEOUT_S
from edge.settings import EdgeSettings
from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_COUNTED, ChatRequest, ChatResponse, Grant, Need
from services.chassis.errors import LegatoError, Reason
from services.router.answers.grants import ANSWER_WITHIN_S, TokenAllowance
from services.router.prompts.tokens import count
from tests.services.router.harness import WAYS, Router, read
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.waiting import until

# Each is one token, also when it stands beside others.
WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten"]
PROMPT = 500
# So that each word is a read of its own.
SPACED = 0.005


def grant(output_tokens: int, *, prompt_tokens: int = PROMPT, last: bool = False) -> Grant:
    return Grant(prompt_tokens=prompt_tokens, output_tokens=output_tokens, last=last)


def words(number: int) -> Reply:
    return Reply(contents=[WORDS[each % 10] for each in range(number)], event_delay_s=SPACED)


async def test_grant_that_covers_everything_is_never_asked_to_grow(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(words(20))
    answer = await read(router.open(max_tokens=30, grant=grant(30)))
    assert not answer.needs
    assert answer.finished.finish_reason == "stop"


async def test_prompt_larger_than_its_grant_is_asked_for_before_the_model(router: Router, upstream: Upstream) -> None:
    call = router.open(grant=grant(4096, prompt_tokens=5))
    response = await call.receive()
    assert response is not None
    assert response.need.prompt_tokens > 40
    assert response.need.output_tokens == 4096
    assert not upstream.requests
    call.send(ChatRequest(grant=grant(4096)))
    answer = await read(call)
    assert answer.text == "Hello, world!"


@pytest.mark.parametrize(("held_elsewhere", "reason"), [(False, Reason.CREDITS_EXHAUSTED), (True, Reason.CREDITS_HELD)])
@pytest.mark.parametrize("given", [grant(100, prompt_tokens=5, last=True), grant(0, last=True)])
async def test_prompt_that_the_last_grant_does_not_cover_is_never_sent(
    given: Grant, held_elsewhere: bool, reason: Reason, router: Router, upstream: Upstream
) -> None:
    given = Grant(
        prompt_tokens=given.prompt_tokens, output_tokens=given.output_tokens, last=True, held_elsewhere=held_elsewhere
    )
    for call, grants in ((router.open(grant=given), []), (router.open(grant=grant(0, prompt_tokens=0)), [given])):
        with pytest.raises(LegatoError) as refusal:
            await read(call, *grants)
        assert (refusal.value.reason, refusal.value.retry_after_s) == (reason, 1 if held_elsewhere else None)
    assert not upstream.requests


async def test_more_is_asked_for_at_half_and_the_answer_goes_on(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(words(100))
    answer = await read(router.open(max_tokens=70, grant=grant(10)), grant(20), grant(40), grant(70))
    assert len(answer.text.split()) == 100
    assert [need.output_tokens for need in answer.needs] == [20, 40, 70]
    assert all(need.prompt_tokens == answer.responses[-1].prompt_tokens for need in answer.needs)
    asked_after = next(
        previous.output_tokens
        for previous, response in zip(answer.responses, answer.responses[1:], strict=False)
        if response.HasField("need")
    )
    assert asked_after == 4
    assert answer.finished.finish_reason == "stop"


@pytest.mark.parametrize("stream", [True, False])
async def test_answer_ends_with_length_where_the_last_grant_does(
    stream: bool, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(words(500))
    answer = await read(router.open(stream=stream, grant=grant(10)), grant(15, last=True))
    assert answer.finished.finish_reason == "length"
    assert answer.text.split() == "".join(WORDS + WORDS[:5]).split()
    assert answer.finished.usage.completion_tokens == 15
    assert answer.finished.usage_source == USAGE_SOURCE_COUNTED
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted


async def test_nothing_beyond_the_grant_is_passed_on_even_from_one_read(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=WORDS * 10, at_once=True))
    answer = await read(router.open(grant=grant(10)), grant(25, last=True))
    assert len(answer.text.split()) == 25
    assert answer.responses[-1].output_tokens == 25
    assert answer.finished.finish_reason == "length"


async def test_refusal_ends_where_its_credit_ends(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], refusals=WORDS * 10, at_once=True))
    answer = await read(router.open(grant=grant(10)), grant(25, last=True))
    assert len(answer.text.split()) == 25
    assert all(response.refusal for response in answer.responses if response.contents)
    assert answer.finished.usage.completion_tokens == 25
    assert answer.finished.finish_reason == "length"


async def test_tool_call_ends_where_its_credit_ends_and_what_was_passed_on_is_charged(
    router: Router, upstream: Upstream
) -> None:
    opening = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "note", "arguments": ""}}
    arguments = [{"index": 0, "function": {"arguments": word}} for word in WORDS * 10]
    upstream.replies.append(Reply(contents=[], tool_calls=[opening, *arguments], at_once=True))
    call = router.open(grant=grant(10), tools_json=b'[{"type":"function","function":{"name":"note"}}]')
    answer = await read(call, grant(25, last=True))
    [passed_on] = answer.tool_calls
    assert count(passed_on["name"]) + count(passed_on["arguments"]) == 25
    assert answer.finished.usage.completion_tokens == 25
    assert answer.finished.finish_reason == "length"


async def test_model_is_told_when_the_credit_is_spent_from_the_start(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(finish_reason="length"))
    answer = await read(router.open(stream=False, max_tokens=50, grant=grant(12, last=True)))
    assert upstream.requests[0].json["max_tokens"] == 12 == answer.responses[0].started.max_tokens
    assert answer.finished.finish_reason == "length"


async def test_stream_waits_at_the_end_of_its_grant_until_there_is_more(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(words(30))
    call = router.open(grant=grant(10))
    passed_on: list[ChatResponse] = []

    async def read_on() -> None:
        while (response := await call.receive()) is not None:
            passed_on.append(response)

    reading = asyncio.create_task(read_on())
    await until(lambda: sum(len(response.contents) for response in passed_on) >= 10)
    await asyncio.sleep(0.2)
    assert sum(len(response.contents) for response in passed_on) == 10
    assert sum(response.HasField("need") for response in passed_on) == 1
    call.send(ChatRequest(grant=grant(10_000)))
    async with asyncio.timeout(30):
        await reading
    assert sum(len(response.contents) for response in passed_on) == 30


class SilentCaller:
    """Says nothing more after its grant."""

    def __init__(self) -> None:
        self.sent: list[ChatResponse] = []

    async def receive(self) -> ChatRequest:
        await asyncio.Event().wait()
        return ChatRequest()

    async def send(self, response: ChatResponse) -> None:
        self.sent.append(response)

    @property
    def has_room(self) -> bool:
        return True

    send_packed = None

    def send_soon(self, response: ChatResponse) -> None:
        self.sent.append(response)


def test_need_may_wait_behind_what_a_slow_client_has_to_take() -> None:
    assert EdgeSettings().stalled_reader_s + 2 * ASK_TIMEOUT_S < ANSWER_WITHIN_S


async def test_need_that_is_never_answered_is_an_error() -> None:
    caller = SilentCaller()
    allowance = TokenAllowance(caller, grant(10), answer_within_s=0.01)
    await allowance.cover_prompt(PROMPT)
    assert await allowance.cover_output(4, 100) == 4
    assert await allowance.cover_output(10, 100) == 10
    assert [response.need for response in caller.sent] == [Need(prompt_tokens=PROMPT, output_tokens=20)]
    with pytest.raises(LegatoError) as refusal:
        await allowance.cover_output(11, 100)
    assert refusal.value.reason is Reason.UNAVAILABLE
    allowance.close()


class StubbornCaller(SilentCaller):
    """Answers every need with the same grant, which is not said to be the last."""

    def __init__(self, answer: Grant) -> None:
        super().__init__()
        self._answer = answer

    async def receive(self) -> ChatRequest:
        return ChatRequest(grant=self._answer)


@pytest.mark.parametrize("answer", [grant(0), grant(10, prompt_tokens=PROMPT - 1)])
async def test_prompt_is_not_asked_for_again_where_the_answer_does_not_cover_it(answer: Grant) -> None:
    caller = StubbornCaller(answer)
    allowance = TokenAllowance(caller, answer)
    async with asyncio.timeout(60):
        with pytest.raises(LegatoError) as refusal:
            await allowance.cover_prompt(PROMPT)
    assert (refusal.value.reason, refusal.value.retry_after_s) == (Reason.UNAVAILABLE, 1)
    assert len(caller.sent) == 1


async def test_output_is_asked_for_ahead_and_at_the_end_of_a_grant_that_does_not_grow_and_no_more() -> None:
    caller = StubbornCaller(grant(10))
    allowance = TokenAllowance(caller, grant(10))
    await allowance.cover_prompt(PROMPT)
    for output_tokens in range(5, 11):
        assert await allowance.cover_output(output_tokens, 100) == output_tokens
        await asyncio.sleep(0)
    assert len(caller.sent) == 1
    async with asyncio.timeout(60):
        with pytest.raises(LegatoError) as refusal:
            await allowance.cover_output(11, 100)
    assert refusal.value.reason is Reason.UNAVAILABLE
    assert len(caller.sent) == 2


async def test_credit_that_could_not_be_held_ahead_is_held_at_the_end_of_the_grant() -> None:
    caller = StubbornCaller(grant(10))
    allowance = TokenAllowance(caller, grant(10))
    await allowance.cover_prompt(PROMPT)
    assert await allowance.cover_output(5, 100) == 5
    await asyncio.sleep(0)
    assert await allowance.cover_output(6, 100) == 6
    caller._answer = grant(20)
    assert await allowance.cover_output(11, 100) == 11


async def test_prompt_that_is_never_covered_is_an_error() -> None:
    allowance = TokenAllowance(SilentCaller(), grant(10), answer_within_s=0.01)
    with pytest.raises(LegatoError) as refusal:
        await allowance.cover_prompt(PROMPT + 1)
    assert refusal.value.reason is Reason.UNAVAILABLE
    allowance.close()


@pytest.mark.parametrize("silent", [Reply(delay_s=600), Reply(first_event_delay_s=600)], ids=["no head", "no event"])
@WAYS
async def test_caller_who_wants_to_know_is_told_when_a_provider_has_the_prompt(
    ordinary: bool, silent: Reply, router: Router, upstream: Upstream
) -> None:
    upstream.replies.append(silent)
    call = router.open(ordinary=ordinary, tells_acceptance=True)
    async with asyncio.timeout(30):
        response = await call.receive()
    assert response is not None
    assert response.accepted
    assert response.prompt_tokens > 5
    call.cancel()


async def test_caller_who_does_not_want_to_know_is_not_told(router: Router, upstream: Upstream) -> None:
    answer = await router.ask()
    assert not any(response.accepted for response in answer.responses)
    answer = await router.ask(tells_acceptance=True)
    assert [response.accepted for response in answer.responses] == [True] + [False] * (len(answer.responses) - 1)
    assert answer.text == "Hello, world!"


async def test_provider_that_is_not_reached_has_accepted_nothing(router: Router, upstream: Upstream) -> None:
    await upstream.stop()
    call = router.open(tells_acceptance=True)
    # Before anything else is told.
    with pytest.raises(LegatoError):
        await call.receive()
