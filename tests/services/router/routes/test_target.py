"""What the routes file says of a model: its limits, times, prices and abilities."""

from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.providers.base import Timeouts
from services.router.routes.routes import load_routes
from services.router.routes.target import ProviderCost
from tests.services.router.routes.test_routes import GOOD


@pytest.fixture
def routes_file(tmp_path: Path) -> Path:
    return tmp_path / "routes.toml"


def test_model_may_have_a_constant_limit(routes_file: Path) -> None:
    routes_file.write_text(GOOD.replace("max_output_tokens = 50", "max_output_tokens = 50\nconcurrency = 2"))
    big, small = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["fortissimo"].targets
    assert (big.concurrency, small.concurrency) == (None, 2)


def test_model_may_have_times_of_its_own_beside_those_of_all(routes_file: Path) -> None:
    text = GOOD.replace(
        "max_output_tokens = 50", "max_output_tokens = 50\nfirst_byte_s = 5\nidle_s = 0.5\ntotal_s = 60"
    )
    routes_file.write_text(text)
    given = Timeouts(connect_s=1, first_byte_s=2, idle_s=3, whole_s=4, total_s=5)
    big, small = load_routes(routes_file, {"HOST_KEY": "secret"}, given).classes["fortissimo"].targets
    assert big.timeouts == given
    assert small.timeouts == Timeouts(connect_s=1, first_byte_s=5, idle_s=0.5, whole_s=4, total_s=60)


def test_model_has_tools_unless_it_is_the_bundled_one_or_the_file_says_so(routes_file: Path) -> None:
    for text, has_tools in ((GOOD, True), (GOOD.replace("[models.big]", "[models.big]\ntools = false"), False)):
        routes_file.write_text(text)
        big, small = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["fortissimo"].targets
        assert (big.has_tools, small.has_tools) == (has_tools, False)


def test_nothing_but_its_server_limits_a_model_unless_the_file_says_so(routes_file: Path) -> None:
    routes_file.write_text(GOOD)
    big = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["mezzo"].targets[0]
    assert (big.concurrency, big.queue_metrics_url) == (None, "")


def test_model_may_name_where_its_queue_is_reported(routes_file: Path) -> None:
    more = '\nqueue_metrics_url = "http://host.test/metrics"\nqueue_most_waiting = 3'
    routes_file.write_text(GOOD.replace("max_output_tokens = 100", f"max_output_tokens = 100{more}"))
    big = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["mezzo"].targets[0]
    assert (big.queue_metrics_url, big.queue_most_waiting) == ("http://host.test/metrics", 3)


def test_what_a_provider_charges_is_read_exactly(routes_file: Path) -> None:
    base = "max_output_tokens = 100"
    for cost, (cached, written, written_1h) in (
        ("", (50_000_000, 50_000_000, 50_000_000)),
        (', cached_input = "0.005", cache_write = "0.0625"', (5_000_000, 62_500_000, 62_500_000)),
        (', cache_write = "0.0625", cache_write_1h = "0.1"', (50_000_000, 62_500_000, 100_000_000)),
    ):
        table = f'{base}\ncost = {{ input = "0.05", output = "0.100000001"{cost} }}'
        routes_file.write_text(GOOD.replace(base, table))
        big = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["mezzo"].targets[0]
        assert big.cost == ProviderCost(50_000_000, cached, 100_000_001, written, written_1h), cost


def test_model_may_continue_answers_in_the_way_of_its_server(routes_file: Path) -> None:
    base = "max_output_tokens = 100"
    for written, style in (
        ("true", PrefixStyle.LAST_MESSAGE),
        ("false", None),
        ('"prefix"', PrefixStyle.PREFIX),
        ('"continue_final_message"', PrefixStyle.CONTINUE_FINAL_MESSAGE),
    ):
        routes_file.write_text(GOOD.replace(base, f"{base}\ncontinues = {written}"))
        big = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["mezzo"].targets[0]
        assert big.continues is style, written
    for written in ('"yes"', "1"):
        routes_file.write_text(GOOD.replace(base, f"{base}\ncontinues = {written}"))
        with pytest.raises(SettingsError, match="continues: must be true"):
            load_routes(routes_file, {"HOST_KEY": "secret"})


def test_model_of_a_known_host_continues_answers_unless_the_file_says_otherwise(routes_file: Path) -> None:
    promise = 'zero_retention = true\nevidence = "contract 4711"\nuntil = 2999-12-31'
    at_mistral = GOOD.replace("https://host.test/v1", "https://api.mistral.ai/v1").replace(
        "zero_retention = true", promise
    )
    at_mistral = at_mistral.replace("vendor/big", "mistral-large-latest")
    own = "max_output_tokens = 100"
    for text, styles in (
        (GOOD, (None, PrefixStyle.LAST_MESSAGE)),
        (at_mistral, (PrefixStyle.REPEATED_PREFIX, PrefixStyle.LAST_MESSAGE)),
        (at_mistral.replace(own, f"{own}\ncontinues = false"), (None, PrefixStyle.LAST_MESSAGE)),
        (at_mistral.replace(own, f"{own}\nabilities = {{ prefill = false }}"), (None, PrefixStyle.LAST_MESSAGE)),
        (GOOD.replace("max_output_tokens = 50\n", "max_output_tokens = 50\ncontinues = false\n"), (None, None)),
    ):
        routes_file.write_text(text)
        targets = load_routes(routes_file, {"HOST_KEY": "secret"}).classes["fortissimo"].targets
        assert tuple(target.continues for target in targets) == styles, text
