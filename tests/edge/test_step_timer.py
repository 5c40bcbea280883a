from edge.metrics import ChatMetrics
from edge.step_timer import StepTimer
from services.chassis.telemetry.metrics import Registry
from services.chassis.telemetry.tracing import Span, Tracer
from tests.support.fakes import FakeClock


def test_each_step_begins_where_the_last_one_ended(clock: FakeClock) -> None:
    registry = Registry()
    metrics = ChatMetrics(registry)
    step_timer = StepTimer(clock)
    clock.advance(0.25)
    step_timer.end_step(metrics.auth)
    clock.advance(0.5)
    assert step_timer.end_step(metrics.reserve) == clock.elapsed_s()
    taken_s = [registry.value("legato_step_duration_seconds_sum", {"step": step}) for step in ("auth", "reserve")]
    assert taken_s == [0.25, 0.5]


def test_steps_of_a_traced_chat_are_spans_of_its_own(clock: FakeClock) -> None:
    metrics = ChatMetrics(Registry())
    ended: list[Span] = []
    chat = Tracer(clock, ended.append).begin("chat forte")
    assert chat is not None
    step_timer = StepTimer(clock, chat)
    clock.advance(0.25)
    step_timer.end_step(metrics.auth)
    clock.advance(0.5)
    step_timer.end_step(metrics.reserve)
    assert [(span.name, span.began_s, span.ended_s) for span in ended] == [("auth", 0, 0.25), ("reserve", 0.25, 0.75)]
    assert {span.parent_id for span in ended} == {chat.span_id}
