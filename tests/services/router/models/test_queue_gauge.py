"""The length of a queue, as each model server publishes it."""

import pytest

from services.router.models.queue_watch import QueueGauge, count_waiting
from tests.support.servers.ports import free_port


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        ('# HELP vllm:num_requests_waiting x\nvllm:num_requests_waiting{engine="0",model_name="m"} 3.0\n', 3),
        ('sglang:num_queue_reqs{engine_type="unified",model_name="m",tp_rank="0"} 4.0\n', 4),
        ("# TYPE tgi_queue_size gauge\ntgi_queue_size 5\n", 5),
        ("llamacpp:requests_deferred 6\nllamacpp:requests_processing 2\n", 6),
        ('vllm:num_requests_waiting{engine="0"} 1\nvllm:num_requests_waiting{engine="1"} 2\n', 3),
        ('vllm:num_requests_waiting{model_name="m"} 1\nvllm:num_requests_waiting{model_name="n"} 20\n', 1),
        ('vllm:num_requests_waiting{model_name="other"} 7\n', 7),
        ('vllm:num_requests_waiting_total{model_name="m"} 9\n', None),
        ("tgi_queue_size NaN\n", None),
        ("tgi_queue_size many\n", None),
        ("<html>not found</html>", None),
        ("", None),
    ],
)
def test_each_server_s_gauge_is_understood(text: str, waiting: float | None) -> None:
    assert count_waiting(text, "m") == waiting


async def test_server_that_is_not_there_says_nothing() -> None:
    gauge = QueueGauge(f"http://127.0.0.1:{free_port()}/metrics", "m")
    assert await gauge.read() is None
    await gauge.aclose()
