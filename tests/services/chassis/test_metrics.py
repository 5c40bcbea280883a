import pytest
from prometheus_client import CollectorRegistry, generate_latest

from services.chassis.metrics import counters_of, counts, gauge, gauges, histograms, new_registry


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_what_is_counted_is_read_by_its_labels(registry: CollectorRegistry) -> None:
    chats = counts(registry, "legato_chats", "Chats.", ["class", "outcome"])
    chats["forte", "complete"].value += 1
    chats["forte", "complete"].value += 1
    chats["mezzo", "refused"].value += 1
    labels = {"class": "forte", "outcome": "complete"}
    assert registry.get_sample_value("legato_chats_total", labels) == 2
    assert registry.get_sample_value("legato_chats_total", {"class": "mezzo", "outcome": "refused"}) == 1


def test_histogram_has_in_each_bucket_what_is_not_above_its_bound(registry: CollectorRegistry) -> None:
    steps = histograms(registry, "legato_step", "Steps.", ["step"], (0.1, 1.0))
    for took_s in (0.05, 0.1, 0.5, 7.0):
        steps["auth",].observe(took_s)

    def below(bound: str) -> float | None:
        return registry.get_sample_value("legato_step_bucket", {"step": "auth", "le": bound})

    assert (below("0.1"), below("1.0"), below("+Inf")) == (2, 3, 4)
    assert registry.get_sample_value("legato_step_count", {"step": "auth"}) == 4
    assert registry.get_sample_value("legato_step_sum", {"step": "auth"}) == pytest.approx(7.65)


def test_gauge_is_read_when_somebody_looks(registry: CollectorRegistry) -> None:
    running = 1
    by_model = {("upstream", "large"): 2.0}
    gauge(registry, "legato_live_streams", "Streams.", lambda: running)
    gauges(registry, "legato_breaker", "Breakers.", ["provider", "model"], by_model.items)
    counters_of(registry, "legato_attempts", "Attempts.", ["provider", "model"], by_model.items)
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
