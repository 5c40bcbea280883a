"""What a reload of the routes would change, told without secrets."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.routing.model_states import ModelStates, OpenProvider
from services.router.routing.reload import Reload, find_changes
from services.router.routing.routes import Routes, load_routes
from services.router.routing.target import DEFAULT_TIMEOUTS
from tests.services.router.routing.test_routes import GOOD


class NeverWarm:
    needs_max_tokens = False

    async def warm(self) -> list[str]:
        return []

    def use_key(self, api_key: str) -> None:
        pass

    async def aclose(self) -> None:
        pass


def read(path: Path, text: str, key: str = "secret-1") -> Routes:
    path.write_text(text)
    return load_routes(path, {"HOST_KEY": key})


def test_the_same_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    assert find_changes(read(path, GOOD), read(path, f"# A comment.\n{GOOD}")) == []


def test_models_that_come_and_go_are_told_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace('models = ["big", "small"]', 'models = ["small"]').replace("= 500", "= 600")
    changes = find_changes(read(path, GOOD), read(path, wanted))
    assert [line for line in changes if "fortissimo" in line] == [
        "- fortissimo: 1. vendor/big of host, context_tokens 1000, max_output_tokens 100",
        "- fortissimo: 2. small of bundled, context_tokens 500, max_output_tokens 50, has_tools False",
        "+ fortissimo: 1. small of bundled, context_tokens 600, max_output_tokens 50, has_tools False",
    ]
    assert len(changes) == 3


def test_weights_are_told_of_members_that_share_a_tier(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    pool = GOOD.replace('models = ["big", "small"]', "tiers = [{ big = 3, small = 1 }]")
    changes = find_changes(read(path, pool), read(path, pool.replace("big = 3", "big = 2")))
    terms = "context_tokens 1000, max_output_tokens 100"
    assert changes == [
        f"- fortissimo: 1. vendor/big of host, weight 3, {terms}",
        f"+ fortissimo: 1. vendor/big of host, weight 2, {terms}",
    ]
    # A tier of one takes all chats, whatever its weight.
    alone = GOOD.replace('models = ["big", "small"]', "tiers = [{ big = 3 }, { small = 2 }]")
    assert find_changes(read(path, GOOD), read(path, alone)) == []


def test_canary_and_its_share_are_told(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    models = 'models = ["big", "small"]'
    tried = GOOD.replace(models, f'{models}\ncanary = {{ model = "small", percent = 5, accounts = ["b", "a"] }}')
    terms = "context_tokens 500, max_output_tokens 50, has_tools False"
    assert find_changes(read(path, GOOD), read(path, tried)) == [
        f"+ fortissimo: canary small of bundled, 5 %, a, b, {terms}"
    ]


def test_another_key_or_address_is_told_and_the_key_is_not(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace("host.test", "elsewhere.test").replace("zdr = true", "zdr = false")
    changes = find_changes(read(path, GOOD), read(path, wanted, "secret-2"))
    assert changes[0].startswith("- provider host: openai, base_url https://host.test/v1")
    assert changes[1].startswith("+ provider host: openai, base_url https://elsewhere.test/v1")
    assert changes[2:] == ["+ provider host: another key", "+ provider host: another body"]
    assert "secret" not in str(changes)


def test_what_may_be_secret_in_an_address_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "routes.toml"
    wanted = GOOD.replace("https://host.test/v1", "https://host.test/v1?token=canary")
    changes = find_changes(read(path, GOOD), read(path, wanted))
    assert changes[1].startswith("+ provider host: openai, base_url https://host.test/v1?***")
    assert "canary" not in str(changes)


async def test_version_other_than_that_of_the_file_is_refused(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_KEY", "secret")
    path = tmp_path / "routes.toml"
    routes = read(path, GOOD)
    model_states = ModelStates(routes, cast(OpenProvider, lambda *_: NeverWarm()), SystemClock(), log)
    reload = Reload(path, DEFAULT_TIMEOUTS, model_states, log)
    staged = read(path, GOOD.replace("= 500", "= 600")).version
    # The file changes again before it is taken over.
    latest = read(path, GOOD.replace("= 500", "= 700")).version
    with pytest.raises(SettingsError, match=f"has version {latest} by now, and not {staged}"):
        reload.now(staged)
    assert model_states.routes.version == routes.version
    reload.now(latest)
    assert model_states.routes.version == latest
    await model_states.aclose()


async def test_lapsed_promise_refuses_a_reload_and_leaves_the_routes_in_use(
    tmp_path: Path, log: Log, log_text: Callable[[], str]
) -> None:
    path, today = tmp_path / "routes.toml", datetime.now(UTC).date()
    public = GOOD.replace("host.test", "api.vendor.com").replace('api_key_env = "HOST_KEY"\n', "")
    promised = public.replace("zero_retention = true", 'zero_retention = true\nevidence = "x"\nuntil = DATE')
    path.write_text(promised.replace("DATE", str(today)))
    model_states = ModelStates(load_routes(path), cast(OpenProvider, lambda *_: NeverWarm()), SystemClock(), log)
    reload = Reload(path, DEFAULT_TIMEOUTS, model_states, log)
    path.write_text(promised.replace("DATE", str(today - timedelta(days=1))))
    with pytest.raises(SettingsError, match=r"providers\.host\.until: zero retention was promised until"):
        reload.now()
    assert model_states.routes.providers["host"].until == today
    reload.warn_of_lapses()
    assert '"provider.promise_lapses"' in log_text()
    path.write_text(promised.replace("DATE", str(today + timedelta(days=90))))
    reload.now()
    assert model_states.routes.providers["host"].until == today + timedelta(days=90)
    await model_states.aclose()
