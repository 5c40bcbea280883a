"""How a model fares, in words."""

import pytest

from console.display.model_health import FAILS_OFTEN, HEALTHY, while_closed


@pytest.mark.parametrize(
    ("attempts", "failures", "told"),
    [(0, 0, HEALTHY), (100, 19, HEALTHY), (100, 20, FAILS_OFTEN), (100, 60, FAILS_OFTEN), (9, 9, HEALTHY)],
)
def test_a_model_that_fails_often_is_not_called_healthy(attempts: int, failures: int, told: tuple[str, str]) -> None:
    assert while_closed(attempts, failures) == told
