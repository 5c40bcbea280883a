"""The routes file, reloaded while chats run."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.router.models.states import ModelStates, OpenProvider
from services.router.routes.reload import Reload
from services.router.routes.routes import Routes, load_routes
from services.router.routes.target import DEFAULT_TIMEOUTS
from tests.services.router.routes.test_routes import GOOD


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
