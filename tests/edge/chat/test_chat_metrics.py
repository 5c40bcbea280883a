import pytest

from edge.chat.chat_metrics import OPERATION, PROVIDER, ChatMetrics, StepTimer
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_CHAT, CHAT_API_MESSAGES
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import Reason
from services.chassis.telemetry.metrics import Registry
from tests.support.fakes import FakeClock
from tests.support.tracing import RecordedSpan, recording_tracer

FORTE = {"gen_ai_operation_name": OPERATION, "gen_ai_provider_name": PROVIDER, "gen_ai_request_model": "forte"}


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def metrics(registry: Registry) -> ChatMetrics:
    return ChatMetrics(registry)


def test_served_chat_is_counted_with_its_times_and_tokens(registry: Registry, metrics: ChatMetrics) -> None:
    metrics.ended("forte", CHAT_API_CHAT, pb.END_COMPLETE, 3.0, 1.0, Usage(prompt_tokens=11, completion_tokens=5))
    assert (
        registry.get_sample_value("legato_chats_total", {"class": "forte", "outcome": "complete", "api": "chat"}) == 1
    )
    assert registry.get_sample_value("gen_ai_server_request_duration_seconds_sum", FORTE) == 3.0
    assert registry.get_sample_value("gen_ai_server_time_to_first_token_seconds_sum", FORTE) == 1.0
    # Two seconds for four tokens.
    assert registry.get_sample_value("gen_ai_server_time_per_output_token_seconds_sum", FORTE) == 0.5
    tokens = [
        registry.get_sample_value("legato_tokens_total", {"class": "forte", "gen_ai_token_type": kind, "api": "chat"})
        for kind in ("input", "output")
    ]
    assert tokens == [11, 5]


def test_traced_chat_leaves_its_trace_beside_its_times(registry: Registry, metrics: ChatMetrics) -> None:
    """An ordinary one leaves nothing."""
    metrics.ended("forte", CHAT_API_CHAT, pb.END_COMPLETE, 3.0, 1.0, Usage(prompt_tokens=11, completion_tokens=5))
    assert traces(registry) == {}
    metrics.ended(
        "forte", CHAT_API_CHAT, pb.END_COMPLETE, 3.0, 1.0, Usage(prompt_tokens=11, completion_tokens=5), "a" * 32
    )
    metrics.ended(
        "forte", CHAT_API_CHAT, pb.END_UPSTREAM_CUT, 9.0, 7.0, Usage(prompt_tokens=11, completion_tokens=5), "b" * 32
    )
    assert traces(registry) == {
        ("gen_ai_server_request_duration_seconds", 3.0): "a" * 32,
        ("gen_ai_server_time_to_first_token_seconds", 1.0): "a" * 32,
        ("gen_ai_server_time_to_first_token_seconds", 7.0): "b" * 32,
    }


def traces(registry: Registry) -> dict[tuple[str, float], str]:
    return {
        (family.name, sample.exemplar.value): sample.exemplar.labels["trace_id"]
        for family in registry.collect()
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_chat_that_was_cut_says_nothing_about_how_long_answers_take(registry: Registry, metrics: ChatMetrics) -> None:
    metrics.ended("forte", CHAT_API_CHAT, pb.END_UPSTREAM_CUT, 3.0, 1.0, Usage(prompt_tokens=11, completion_tokens=5))
    assert (
        registry.get_sample_value("legato_chats_total", {"class": "forte", "outcome": "upstream_cut", "api": "chat"})
        == 1
    )
    assert registry.get_sample_value("gen_ai_server_time_to_first_token_seconds_count", FORTE) == 1
    assert registry.get_sample_value("gen_ai_server_request_duration_seconds_count", FORTE) == 0
    assert registry.get_sample_value("gen_ai_server_time_per_output_token_seconds_count", FORTE) == 0


def test_chat_that_was_refused_is_counted_and_nothing_else(registry: Registry, metrics: ChatMetrics) -> None:
    metrics.ended("mezzo", CHAT_API_CHAT, pb.END_REFUSED, 0.1, None, Usage())
    metrics.refused(Reason.CREDITS_EXHAUSTED, CHAT_API_MESSAGES)
    metrics.refused(Reason.CREDITS_EXHAUSTED)
    assert registry.get_sample_value("legato_chats_total", {"class": "mezzo", "outcome": "refused", "api": "chat"}) == 1
    for api in ("messages", ""):
        refused = registry.get_sample_value("legato_refusals_total", {"reason": "CREDITS_EXHAUSTED", "api": api})
        assert refused == 1, api
    mezzo = {**FORTE, "gen_ai_request_model": "mezzo"}
    assert registry.get_sample_value("gen_ai_server_time_to_first_token_seconds_count", mezzo) is None


@pytest.mark.parametrize("end", [end for end in pb.End.values() if end != pb.END_UNSPECIFIED])
def test_every_end_that_a_chat_may_have_is_counted(
    registry: Registry, metrics: ChatMetrics, end: "pb.End.ValueType"
) -> None:
    metrics.ended("forte", CHAT_API_CHAT, end, 1.0, None, Usage())
    outcome = pb.End.Name(end).removeprefix("END_").lower()
    assert registry.get_sample_value("legato_chats_total", {"class": "forte", "outcome": outcome, "api": "chat"}) == 1


def test_each_step_begins_where_the_last_one_ended(clock: FakeClock) -> None:
    registry = Registry()
    metrics = ChatMetrics(registry)
    step_timer = StepTimer(clock)
    clock.advance(0.25)
    step_timer.end_step(metrics.auth)
    clock.advance(0.5)
    assert step_timer.end_step(metrics.reserve) == clock.elapsed_s()
    taken_s = [
        registry.get_sample_value("legato_step_duration_seconds_sum", {"step": step}) for step in ("auth", "reserve")
    ]
    assert taken_s == [0.25, 0.5]


def test_steps_of_a_traced_chat_are_spans_of_its_own(clock: FakeClock) -> None:
    metrics = ChatMetrics(Registry())
    ended: list[RecordedSpan] = []
    began_ns = round(clock.now().timestamp() * 1e9)
    chat = recording_tracer(clock, ended).begin("chat forte")
    assert chat is not None
    step_timer = StepTimer(clock, chat)
    clock.advance(0.25)
    step_timer.end_step(metrics.auth)
    clock.advance(0.5)
    step_timer.end_step(metrics.reserve)
    taken_s = [(span.name, (span.began_ns - began_ns) / 1e9, (span.ended_ns - began_ns) / 1e9) for span in ended]
    assert taken_s == [("auth", 0, 0.25), ("reserve", 0.25, 0.75)]
    assert {span.parent_id for span in ended} == {chat.span_id}
