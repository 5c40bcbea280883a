import asyncio

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_of
from prometheus_client.parser import text_string_to_metric_families

from services.chassis.telemetry.metrics import Registry, new_registry


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_what_is_counted_is_read_by_its_labels(registry: Registry) -> None:
    chats = registry.counts("legato_chats", "Chats.", "class", "outcome")
    chats["forte", "complete"] += 1
    chats["forte", "complete"] += 1
    chats["mezzo", "refused"] += 1
    labels = {"class": "forte", "outcome": "complete"}
    assert registry.get_sample_value("legato_chats_total", labels) == 2
    assert registry.get_sample_value("legato_chats_total", {"class": "mezzo", "outcome": "refused"}) == 1


def test_histogram_has_in_each_bucket_what_is_not_above_its_bound(registry: Registry) -> None:
    steps = registry.histograms("legato_step", "Steps.", (0.1, 1.0), "step")
    for took_s in (0.05, 0.1, 0.5, 7.0):
        steps["auth",].observe(took_s)

    def below(bound: str) -> float | None:
        return registry.get_sample_value("legato_step_bucket", {"step": "auth", "le": bound})

    assert (below("0.1"), below("1.0"), below("+Inf")) == (2, 3, 4)
    assert registry.get_sample_value("legato_step_count", {"step": "auth"}) == 4
    assert registry.get_sample_value("legato_step_sum", {"step": "auth"}) == pytest.approx(7.65)


def test_traced_observation_is_told_in_its_bucket_by_openmetrics(registry: Registry) -> None:
    steps = registry.histograms("legato_step", "Steps.", (0.1, 1.0), "step")
    for took_s, trace_id in ((0.2, "a" * 32), (0.3, "b" * 32), (7.0, "")):
        steps["auth",].observe(took_s)
        if trace_id:
            steps["auth",].record_trace(took_s, trace_id)
    text = openmetrics_of(registry).decode()  # type: ignore[no-untyped-call]
    [family] = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    told = {
        sample.labels["le"]: (sample.exemplar.labels, sample.exemplar.value)
        for sample in family.samples
        if sample.exemplar is not None
    }
    # The last one of each.
    assert told == {"1.0": ({"trace_id": "b" * 32}, 0.3)}


def test_gauge_is_read_when_it_is_scraped(registry: Registry) -> None:
    running = 1
    by_model = {("upstream", "large"): 2.0}
    registry.gauge("legato_live_streams", "Streams.", lambda: running)
    registry.gauge("legato_breaker", "Breakers.", lambda: by_model, "provider", "model")
    registry.counter("legato_attempts", "Attempts.", lambda: by_model, "provider", "model")
    running = 5
    by_model["upstream", "large"] = 3.0
    labels = {"provider": "upstream", "model": "large"}
    assert registry.get_sample_value("legato_live_streams") == 5
    assert registry.get_sample_value("legato_breaker", labels) == 3
    assert registry.get_sample_value("legato_attempts_total", labels) == 3


def test_every_process_tells_its_memory_and_processor_time() -> None:
    text = generate_latest(new_registry()).decode()
    assert "process_resident_memory_bytes" in text
    assert "process_cpu_seconds_total" in text


async def test_task_that_is_not_ended_is_seen() -> None:
    registry = new_registry()
    before = registry.get_sample_value("process_tasks") or 0
    forgotten = asyncio.create_task(asyncio.Event().wait())
    assert registry.get_sample_value("process_tasks") == before + 1
    forgotten.cancel()
    await asyncio.wait([forgotten])
    assert registry.get_sample_value("process_tasks") == before


def test_what_is_told_is_understood_by_prometheus(registry: Registry) -> None:
    odd = 'a "quoted" name\\with\nall'
    registry.gauge("legato_streams", "Streams.", lambda: {odd: 3, "plain": float("inf")}, "model")
    registry.histograms("legato_step_seconds", "Steps.", (0.1, 1), "step")["auth",].observe(0.5)
    registry.counts("legato_chats", "Chats.")[()] += 2
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    assert {name: family.type for name, family in families.items()} == {
        "legato_streams": "gauge",
        "legato_step_seconds": "histogram",
        "legato_chats": "counter",
    }
    assert [(sample.labels, sample.value) for sample in families["legato_streams"].samples] == [
        ({"model": odd}, 3),
        ({"model": "plain"}, float("inf")),
    ]
    assert [sample.labels.get("le") for sample in families["legato_step_seconds"].samples][:3] == ["0.1", "1.0", "+Inf"]


def test_name_that_is_told_twice_is_a_mistake_in_the_code(registry: Registry) -> None:
    registry.gauge("legato_live_streams", "Streams.", lambda: 1)
    with pytest.raises(ValueError, match="legato_live_streams"):
        registry.gauge("legato_live_streams", "Streams.", lambda: 2)
