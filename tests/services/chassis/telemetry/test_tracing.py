import asyncio

import pytest

from services.chassis.telemetry.tracing import Span, SpanKind, Tracer, current_span, read_traceparent, work_on
from tests.support.fakes import FakeClock

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def ended() -> list[Span]:
    return []


@pytest.fixture
def tracer(clock: FakeClock, ended: list[Span]) -> Tracer:
    return Tracer(clock, ended.append)


def begun(tracer: Tracer, traceparent: str = "") -> Span:
    span = tracer.begin("chat", traceparent)
    assert span is not None
    return span


def test_trace_of_a_client_is_gone_on_with(tracer: Tracer) -> None:
    span = begun(tracer, TRACEPARENT)
    assert (span.trace_id, span.parent_id) == (TRACE, PARENT)
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
def test_header_that_names_no_trace_begins_one(tracer: Tracer, header: str) -> None:
    span = begun(tracer, header)
    assert span.parent_id == ""
    assert span.trace_id != begun(tracer, header).trace_id


def test_later_version_of_the_header_is_read_as_far_as_it_is_known() -> None:
    assert read_traceparent(f"01-{TRACE}-{PARENT}-01-what-will-be") == (TRACE, PARENT)


def test_only_a_part_of_the_traces_is_recorded_and_every_process_means_the_same_part(
    clock: FakeClock, ended: list[Span]
) -> None:
    half = Tracer(clock, ended.append, ratio=0.5)
    assert half.begin("chat", f"00-{'a' * 18}{'7' * 14}-{PARENT}-01") is not None
    assert half.begin("chat", f"00-{'a' * 18}{'8' * 14}-{PARENT}-01") is None
    assert half.resume("Chat", f"00-{'a' * 18}{'8' * 14}-{PARENT}-01") is not None
    assert Tracer(clock, ended.append, ratio=0).begin("chat", f"00-{'a' * 18}{'0' * 14}-{PARENT}-01") is None


def test_span_is_as_long_as_its_work_whatever_happens_to_the_time_of_day(
    tracer: Tracer, clock: FakeClock, ended: list[Span]
) -> None:
    span = begun(tracer)
    clock.advance(2)
    step = span.child("reserve", began_s=1.5)
    step.end(1.75)
    upstream = span.child("chat gpt", SpanKind.CLIENT)
    clock.advance(3)
    upstream.end()
    span.end()
    span.end()
    assert ended == [step, upstream, span]
    assert [(each.began_s, each.ended_s) for each in ended] == [(1.5, 1.75), (2, 5), (0, 5)]
    assert {each.parent_id for each in (step, upstream)} == {span.span_id}
    assert {each.epoch_ns for each in ended} == {round(clock.now().timestamp() * 1e6) * 1000 - 5_000_000_000}


def test_attribute_that_is_not_on_the_list_is_a_mistake_in_the_code(tracer: Tracer, ended: list[Span]) -> None:
    span = begun(tracer)
    span.attributes["gen_ai.prompt"] = "what somebody said"
    with pytest.raises(ValueError, match=r"gen_ai\.prompt") as raised:
        span.end()
    assert "somebody" not in str(raised.value)
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
