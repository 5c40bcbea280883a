"""Values of the routes file that are of the wrong kind."""

from pathlib import Path

import pytest

from tests.services.router.routes.test_routes import GOOD, mistakes_of


@pytest.fixture
def routes_file(tmp_path: Path) -> Path:
    return tmp_path / "routes.toml"


def test_constant_limit_must_be_a_number_above_zero(routes_file: Path) -> None:
    text = GOOD.replace("max_output_tokens = 50", "max_output_tokens = 50\nconcurrency = 0")
    assert mistakes_of(routes_file, text) == ["models.small.concurrency: must be a whole number above zero"]


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan", "true", '"5"'])
def test_time_must_be_a_number_of_seconds_above_zero(value: str, routes_file: Path) -> None:
    text = GOOD.replace("max_output_tokens = 50", f"max_output_tokens = 50\nwhole_s = {value}")
    assert mistakes_of(routes_file, text) == ["models.small.whole_s: must be a number of seconds above zero"]


@pytest.mark.parametrize("text", ["classes = 3", "[classes]\nmezzo = 3", "[[models]]\nname = 'x'", "not toml"])
def test_file_of_the_wrong_shape_is_a_mistake_and_no_crash(routes_file: Path, text: str) -> None:
    assert mistakes_of(routes_file, text)


def test_mistakes_in_what_limits_a_model_are_named(routes_file: Path) -> None:
    more = '\nqueue_metrics_url = "host.test/metrics"\nqueue_most_waiting = 0\nqueueing_s = 1'
    assert mistakes_of(routes_file, GOOD.replace("max_output_tokens = 100", f"max_output_tokens = 100{more}")) == [
        "models.big.queue_metrics_url: must start with http:// or https://",
        "models.big.queue_most_waiting: must be a whole number above zero",
        "models.big.queueing_s: was removed: latency limits no model (see concurrency); delete it",
    ]


def test_a_cost_that_is_no_amount_is_a_mistake(routes_file: Path) -> None:
    cost = 'max_output_tokens = 100\ncost = { input = 0.05, output = "-1", price = "2" }'
    assert mistakes_of(routes_file, GOOD.replace("max_output_tokens = 100", cost)) == [
        'models.big.cost.input: must be dollars in a string, like "0.10", with at most nine decimals',
        'models.big.cost.output: must be dollars in a string, like "0.10", with at most nine decimals',
        "models.big.cost.price: is not a known key",
    ]
