"""Spans that reach a collector, and a collector that does not take them."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.telemetry.otlp import exporting
from services.chassis.telemetry.tracing import Tracer
from tests.support.fakes import FakeClock
from tests.support.servers.collector import Collector
from tests.support.waiting import wait_until


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture(autouse=True)
def delay_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")


def spans_of(registry: Registry, outcome: str) -> float | None:
    return registry.get_sample_value("legato_spans_total", {"outcome": outcome})


def record(tracer: Tracer, number: int) -> None:
    for _ in range(number):
        span = tracer.begin("chat forte")
        assert span is not None
        span.end()


def test_spans_reach_the_collector_with_all_they_say(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry
) -> None:
    with exporting(collector.endpoint, "edge", clock, log, registry) as tracer:
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
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    with exporting(collector.endpoint, "edge", clock, log, registry) as tracer:
        record(tracer, 3)
    assert len(collector.spans) == 3


@pytest.mark.parametrize("failure", ["refuses", "is away"])
def test_collector_that_does_not_take_spans_costs_nothing_but_those(
    failure: str, collector: Collector, clock: FakeClock, log: Log, log_text: Callable[[], str], registry: Registry
) -> None:
    # Not one of those after which the exporter tries again.
    collector.status = 400
    endpoint = collector.endpoint if failure == "refuses" else "http://127.0.0.1:1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.01")
        with exporting(endpoint, "edge", clock, log, registry) as tracer:
            record(tracer, 1)
            wait_until(lambda: spans_of(registry, "dropped") == 1)
            record(tracer, 1)
            wait_until(lambda: spans_of(registry, "dropped") == 2)
            assert log_text().count("collector.unreachable") == 1
            assert spans_of(registry, "sent") == 0


def test_no_more_spans_wait_than_there_is_room_for(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    collector.status = 400
    with exporting(collector.endpoint, "edge", clock, log, registry) as tracer:
        record(tracer, 9)
        assert spans_of(registry, "dropped") == 0
        record(tracer, 100)
    assert spans_of(registry, "sent") == 0
    assert (spans_of(registry, "dropped") or 0) >= 109


def test_opentelemetrys_sdk_is_not_loaded_where_nothing_is_traced() -> None:
    check = (
        "import edge.__main__, services.metering.__main__, services.router.__main__, sys;"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_variables_of_opentelemetry_work(
    collector: Collector, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chats")
    with exporting("", "edge", clock, log, registry) as tracer:
        record(tracer, 1)
    assert [span.service for span in collector.spans] == ["chats"]
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    with exporting("", "edge", clock, log, Registry()) as tracer:
        assert tracer.begin("chat forte") is None
