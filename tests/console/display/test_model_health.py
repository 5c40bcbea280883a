"""How a model fares, in words."""

import pytest

from console.display.model_health import FAILS_OFTEN, HEALTHY, NOT_CALLED, while_closed


@pytest.mark.parametrize(
    ("calls", "failures", "told"),
    [(0, 0, NOT_CALLED), (100, 19, HEALTHY), (100, 20, FAILS_OFTEN), (9, 9, FAILS_OFTEN), (2, 2, HEALTHY)],
)
def test_a_model_that_fails_often_is_not_called_healthy(calls: int, failures: int, told: tuple[str, str]) -> None:
    assert while_closed(calls, failures) == told
