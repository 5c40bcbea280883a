"""Promises of providers: what they need, and how it is told that they lapse."""

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.router.providers.base import ProviderRoute
from services.router.routes.retention_promise import (
    WARNING_DAYS,
    find_lapses,
    lapses_at_s,
    warn_of_lapses,
)
from services.router.routes.routes import load_routes
from tests.services.router.routes.test_routes import GOOD

TODAY = date(2026, 11, 18)
PROMISE = 'zero_retention = true\nevidence = "contract 4711"\nuntil = 2026-11-18\n'
PUBLIC = GOOD.replace("host.test", "api.vendor.com")


def read(folder: Path, text: str) -> ProviderRoute:
    path = folder / "routes.toml"
    path.write_text(text)
    return load_routes(path, {"HOST_KEY": "secret"}, today=TODAY).providers["host"]


def mistakes_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as refusal:
        read(folder, text)
    return [line.removeprefix(f"{folder}/routes.toml: ") for line in str(refusal.value).splitlines()]


def test_promise_of_another_holds_to_the_end_of_its_last_day(tmp_path: Path) -> None:
    host = read(tmp_path, PUBLIC.replace("zero_retention = true\n", PROMISE))
    assert (host.evidence, host.until) == ("contract 4711", TODAY)
    assert lapses_at_s(TODAY) == 1_795_046_400


def test_own_server_needs_no_evidence_of_what_its_operator_says(tmp_path: Path) -> None:
    assert (read(tmp_path, GOOD).evidence, read(tmp_path, GOOD).until) == ("", None)


def test_promise_of_another_needs_evidence_and_a_date(tmp_path: Path) -> None:
    evidence, until = mistakes_of(tmp_path, PUBLIC)
    assert evidence.startswith("providers.host.evidence: is missing: a reference to the agreement with the provider")
    assert until.startswith("providers.host.until: is missing: the date until which the provider has agreed")
    said = PROMISE.replace('"contract 4711"', '""').replace("2026-11-18", '"soon"')
    assert mistakes_of(tmp_path, PUBLIC.replace("zero_retention = true\n", said)) == [
        "providers.host.evidence: must be a non-empty string",
        "providers.host.until: must be a date, like 2027-06-30",
    ]


@pytest.mark.parametrize("text", [PUBLIC, GOOD], ids=["public", "own"])
def test_lapsed_promise_is_a_mistake(text: str, tmp_path: Path) -> None:
    lapsed = text.replace("zero_retention = true\n", PROMISE.replace("11-18", "11-17"))
    assert mistakes_of(tmp_path, lapsed) == [
        "providers.host.until: zero retention was promised until 2026-11-17: renew the agreement with the provider"
    ]


def test_promises_that_lapse_soon_are_told(log: Log, log_text: Callable[[], str]) -> None:
    days = {"soon": WARNING_DAYS, "later": WARNING_DAYS + 1, "over": -2}
    providers = {name: ProviderRoute(name, "openai", until=TODAY + timedelta(left)) for name, left in days.items()}
    providers["own"] = ProviderRoute("own", "openai")
    told = {
        "over": "zero retention is promised until 2026-11-16, which is 2 days ago",
        "soon": "zero retention is promised until 2026-12-18, which is in 30 days",
    }
    assert {lapse.provider: str(lapse) for lapse in find_lapses(providers, TODAY)} == told
    warn_of_lapses(providers, TODAY, log)
    assert log_text().count('"provider.promise_lapses"') == 2
    assert all(reason in log_text() for reason in told.values())
