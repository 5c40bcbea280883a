"""Verdicts on promises, from figures that are made up."""

import pytest

from bench.measurements import cancellation, rpc_beside_http, slow_readers
from bench.report import Row


@pytest.mark.parametrize(("longest_ms", "said"), [(4.0, "kept"), (250.0, "kept"), (251.0, "BROKEN")])
def test_slowest_client_decides_about_cancellation(longest_ms: float, said: str) -> None:
    rows = [Row(cancellation.MEASUREMENT, "case", {"max ms": max_ms}, 0.0) for max_ms in (1.0, longest_ms, 2.0)]
    assert cancellation.verdict(rows).endswith(f": {said}.")


@pytest.mark.parametrize(("reader_kb", "said"), [(300.0, "kept"), (513.0, "BROKEN")])
def test_promise_about_readers_that_stop_is_one_of_memory(reader_kb: float, said: str) -> None:
    assert slow_readers.verdict([Row(slow_readers.MEASUREMENT, "case", {"KB a reader": reader_kb}, 0.0)]).endswith(
        f": {said}."
    )


@pytest.mark.parametrize(("ratio", "said"), [(1.2, "kept"), (1.21, "BROKEN")])
def test_dearest_load_decides_about_grpc(ratio: float, said: str) -> None:
    rows = [Row(f"{rpc_beside_http.MEASUREMENT}: load", "gRPC", {"of HTTP's": each}, 0.0) for each in (0.9, ratio, 1.0)]
    assert rpc_beside_http.verdict(rows).endswith(f": {said}.")
