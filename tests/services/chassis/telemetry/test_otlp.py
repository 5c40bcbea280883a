from collections.abc import Callable, Iterator

import pytest

from services.chassis.process.run import tracing_to
from services.chassis.settings import SettingsError
from services.chassis.telemetry import otlp
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.telemetry.tracing import Tracer
from tests.support.fakes import FakeClock
from tests.support.servers.collector import Collector
from tests.support.service import wait_until


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def registry() -> Registry:
    return Registry()


def spans_of(registry: Registry, outcome: str) -> float | None:
    return registry.get_sample_value("legato_spans_total", {"outcome": outcome})


def record(tracer: Tracer | None, number: int) -> None:
    assert tracer is not None
    for _ in range(number):
        span = tracer.begin("chat forte")
        assert span is not None
        span.end()


def test_spans_reach_the_collector_with_all_they_say(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EACH_S", 0.01)
    with tracing_to(collector.endpoint, "edge", clock, log, registry) as tracer:
        assert tracer is not None
        span = tracer.begin("chat forte")
        assert span is not None
        clock.advance(0.25)
        span.attributes.update(
            {
                "gen_ai.request.model": "forte",
                "gen_ai.usage.input_tokens": 11,
                "gen_ai.response.finish_reasons": ["stop"],
                "legato.stream": True,
            }
        )
        span.end()
        refused = span.child("reserve")
        refused.attributes["error.type"] = "credits_exhausted"
        refused.end()
        # They are counted when the collector has answered.
        wait_until(lambda: spans_of(registry, "sent") == 2)
    chat, reserve = collector.spans
    assert (chat.service, chat.name, chat.kind, chat.parent_id) == ("legato-edge", "chat forte", 2, "")
    assert chat.attributes == {
        "gen_ai.request.model": "forte",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.response.finish_reasons": ["stop"],
        "legato.stream": True,
    }
    assert chat.ended_ns - chat.began_ns == 250_000_000
    assert chat.ended_ns == round(clock.now().timestamp() * 1e6) * 1000
    assert (chat.is_error, reserve.is_error) == (False, True)
    assert (reserve.parent_id, reserve.trace_id) == (chat.span_id, chat.trace_id)


def test_what_is_left_at_the_end_is_brought_then(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EACH_S", 3600.0)
    with tracing_to(collector.endpoint, "edge", clock, log, registry) as tracer:
        record(tracer, otlp.BATCH_MOST + 1)
    assert [body.count(b'"spanId"') for body in collector.bodies] == [otlp.BATCH_MOST, 1]


@pytest.mark.parametrize("failure", ["refuses", "is away"])
def test_collector_that_does_not_take_spans_costs_nothing_but_those(
    failure: str,
    collector: Collector,
    clock: FakeClock,
    log: Log,
    log_text: Callable[[], str],
    registry: Registry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "EACH_S", 0.01)
    collector.status = 503
    endpoint = collector.endpoint if failure == "refuses" else "http://127.0.0.1:1"
    with tracing_to(endpoint, "edge", clock, log, registry) as tracer:
        record(tracer, 1)
        wait_until(lambda: spans_of(registry, "dropped") == 1)
        record(tracer, 1)
        wait_until(lambda: spans_of(registry, "dropped") == 2)
        assert log_text().count("collector.unreachable") == 1
        assert spans_of(registry, "sent") == 0


def test_no_more_spans_wait_than_there_is_room_for(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EACH_S", 3600.0)
    monkeypatch.setattr(otlp, "WAITING_MOST", 10)
    with tracing_to(collector.endpoint, "edge", clock, log, registry) as tracer:
        record(tracer, 25)
        assert spans_of(registry, "dropped") == 15
    assert len(collector.spans) == 10


def test_without_a_collector_there_is_no_tracer(clock: FakeClock, log: Log, registry: Registry) -> None:
    with tracing_to("", "edge", clock, log, registry) as tracer:
        assert tracer is None
    assert spans_of(registry, "sent") is None


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://"])
def test_endpoint_that_is_none_is_named(endpoint: str, clock: FakeClock, log: Log, registry: Registry) -> None:
    with (
        pytest.raises(SettingsError, match="LEGATO_OTLP_ENDPOINT"),
        tracing_to(endpoint, "edge", clock, log, registry),
    ):
        pass
