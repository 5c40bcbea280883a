"""One question to a model, in the trace of its chat."""

import asyncio
from pathlib import Path

import pytest
from opentelemetry.trace import SpanKind

from legato_protos.router.v1.router_pb2 import Finished
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.tracing import Span, Tracer, work_on
from services.router.answers.answer_end import AnswerEnd
from services.router.calls.call_span import begin_span, end_span
from services.router.providers.base import Failure, ProviderError, ProviderUsage
from tests.services.router.harness import running_router, target
from tests.support.fakes import FakeClock
from tests.support.tracing import RecordedSpan, recording_tracer
from tests.support.upstreams.openai import Reply, Upstream


@pytest.fixture
def spans() -> list[RecordedSpan]:
    return []


@pytest.fixture
def tracer(clock: FakeClock, spans: list[RecordedSpan]) -> Tracer:
    return recording_tracer(clock, spans)


@pytest.fixture
async def chat(tracer: Tracer) -> Span:
    span = tracer.begin("Chat")
    assert span is not None
    return span


async def test_question_says_who_is_asked_and_what_came_of_it(chat: Span, spans: list[RecordedSpan]) -> None:
    work_on(chat)
    question = begin_span(target("vendor"), number=2, max_tokens=50, provider_name="mistral_ai")
    usage = Usage(prompt_tokens=11, completion_tokens=7)
    told = ProviderUsage(11, 7, 5, cache_write_tokens=2, reasoning_tokens=3, model_name="vendor-model-2026-11-01")
    end_span(question, None, AnswerEnd(Finished(finish_reason="stop", usage=usage), told))
    [span] = spans
    assert (span.name, span.kind, span.parent_id) == ("chat vendor-model", SpanKind.CLIENT, chat.span_id)
    assert span.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "vendor-model",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.response.model": "vendor-model-2026-11-01",
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.cache_write.input_tokens": 2,
        "gen_ai.usage.reasoning.output_tokens": 3,
        "legato.attempt": 2,
        "legato.provider": "vendor",
    }


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ProviderError("said no", Failure.BUSY, 429), "429"),
        (ProviderError("was not reached"), "provider"),
        (asyncio.CancelledError(), "cancelled"),
        (ValueError("what a user said"), "ValueError"),
    ],
)
async def test_question_that_fails_says_how_in_words_of_ours(
    chat: Span, spans: list[RecordedSpan], error: BaseException, told: str
) -> None:
    work_on(chat)
    end_span(begin_span(target("vendor"), 1, 50, "vendor"), error)
    assert spans[0].attributes["error.type"] == told


async def test_nothing_is_made_where_nothing_is_traced(spans: list[RecordedSpan]) -> None:
    end_span(begin_span(target("vendor"), 1, 50, "vendor"), None)
    assert spans == []


async def test_question_says_what_the_provider_reports_of_its_answer(
    socket_folder: Path, log: Log, tracer: Tracer, chat: Span, spans: list[RecordedSpan]
) -> None:
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    async with (
        Upstream(Reply(usage=usage)) as upstream,
        running_router(socket_folder, log, {target("vendor"): upstream}, tracer=tracer) as router,
    ):
        work_on(chat)
        await router.ask()
    said = spans[0].attributes
    assert said["gen_ai.response.model"] == "upstream-model"
    assert said["gen_ai.usage.cache_read.input_tokens"] == 5
    assert said["gen_ai.usage.reasoning.output_tokens"] == 3


@pytest.mark.parametrize("sends_traces", [False, True])
async def test_provider_goes_on_with_the_trace_only_if_it_is_told(
    socket_folder: Path, log: Log, tracer: Tracer, chat: Span, spans: list[RecordedSpan], *, sends_traces: bool
) -> None:
    async with (
        Upstream(Reply(status=500)) as first,
        Upstream() as second,
        running_router(
            socket_folder,
            log,
            {target("first"): first, target("second"): second},
            tracer=tracer,
            sends_traces=sends_traces,
        ) as router,
    ):
        work_on(chat)
        await router.ask()
    failed, answered, served = spans
    assert (failed.attributes["error.type"], served.name) == ("500", "legato.router.v1.RouterService/Chat")
    assert {failed.parent_id, answered.parent_id} == {served.span_id}
    told = [upstream.requests[0].headers.get("traceparent") for upstream in (first, second)]
    assert told == ([failed.traceparent, answered.traceparent] if sends_traces else [None, None])
