import asyncio

import pytest
from opentelemetry.trace import SpanKind

from services.chassis.telemetry.tracing import Span, Tracer, current_span, work_on
from tests.support.fakes import FakeClock
from tests.support.tracing import RecordedSpan, recording_tracer

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def ended() -> list[RecordedSpan]:
    return []


@pytest.fixture
def tracer(clock: FakeClock, ended: list[RecordedSpan]) -> Tracer:
    return recording_tracer(clock, ended)


def begun(tracer: Tracer, traceparent: str = "") -> Span:
    span = tracer.begin("chat", traceparent)
    assert span is not None
    return span


def test_trace_of_a_client_is_gone_on_with(tracer: Tracer, ended: list[RecordedSpan]) -> None:
    span = begun(tracer, TRACEPARENT)
    span.end()
    assert (ended[0].trace_id, ended[0].parent_id, ended[0].kind) == (TRACE, PARENT, SpanKind.SERVER)
    assert span.traceparent == f"00-{TRACE}-{span.span_id}-01"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}",
        TRACEPARENT.upper(),
    ],
)
def test_header_that_names_no_trace_begins_one(tracer: Tracer, ended: list[RecordedSpan], header: str) -> None:
    span = begun(tracer, header)
    span.end()
    assert ended[0].parent_id == ""
    assert span.trace_id != begun(tracer, header).trace_id
    assert tracer.resume("Chat", header) is None


def test_later_version_of_the_header_is_read_as_far_as_it_is_known(tracer: Tracer) -> None:
    assert begun(tracer, f"01-{TRACE}-{PARENT}-01-what-will-be").trace_id == TRACE


def test_only_a_part_of_the_traces_is_recorded_and_every_process_means_the_same_part(
    clock: FakeClock, ended: list[RecordedSpan]
) -> None:
    half, whole = recording_tracer(clock, ended, ratio=0.5), recording_tracer(clock, ended)
    assert half.begin("chat", f"00-{'a' * 16}{'7' * 16}-{PARENT}-01") is not None
    assert half.begin("chat", f"00-{'a' * 16}{'8' * 16}-{PARENT}-01") is None
    assert whole.resume("Chat", f"00-{'a' * 16}{'8' * 16}-{PARENT}-01") is not None
    assert recording_tracer(clock, ended, ratio=0).begin("chat", f"00-{'a' * 16}{'0' * 15}1-{PARENT}-01") is None


def test_span_is_as_long_as_its_work_whatever_happens_to_the_time_of_day(
    tracer: Tracer, clock: FakeClock, ended: list[RecordedSpan]
) -> None:
    began_ns = round(clock.now().timestamp() * 1e9)
    span = begun(tracer)
    clock.advance(2)
    step = span.child("reserve", began_s=1.5)
    step.end(1.75)
    upstream = span.child("chat gpt", is_client=True)
    clock.advance(3)
    upstream.end()
    span.name = "chat forte"
    span.end()
    span.end()
    assert [
        (each.name, each.kind, (each.began_ns - began_ns) / 1e9, (each.ended_ns - began_ns) / 1e9) for each in ended
    ] == [
        ("reserve", SpanKind.INTERNAL, 1.5, 1.75),
        ("chat gpt", SpanKind.CLIENT, 2, 5),
        ("chat forte", SpanKind.SERVER, 0, 5),
    ]
    assert [each.parent_id for each in ended] == [span.span_id, span.span_id, ""]


def test_attribute_that_is_not_on_the_list_is_a_mistake_in_the_code(tracer: Tracer, ended: list[RecordedSpan]) -> None:
    span = begun(tracer)
    span.attributes["gen_ai.prompt"] = "what was said"
    with pytest.raises(ValueError, match=r"gen_ai\.prompt") as raised:
        span.end()
    assert "was said" not in str(raised.value)
    assert ended == []


async def test_tasks_know_what_they_work_on_and_others_do_not(tracer: Tracer) -> None:
    span = begun(tracer)

    async def look() -> Span | None:
        return current_span()

    async def work() -> Span | None:
        work_on(span)
        return await asyncio.create_task(look())

    assert await asyncio.create_task(work()) is span
    assert current_span() is None
    assert await asyncio.create_task(look()) is None
