from datetime import UTC, datetime, timedelta

import pytest

from services.auth.core.times import to_micros
from services.auth.keys.records import Scope
from services.auth.keys.rules import checks
from services.chassis.errors import LegatoError

NOW = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)


def test_scopes_are_kept_once_and_in_one_order() -> None:
    assert checks.scopes([Scope.USAGE, Scope.INFERENCE, Scope.USAGE]) == (Scope.INFERENCE, Scope.USAGE)


def test_unknown_scope_is_refused_and_not_dropped() -> None:
    with pytest.raises(LegatoError) as caught:
        checks.scopes([None])
    assert caught.value.param == "scopes"


@pytest.mark.parametrize("days", [30, 90, 365])
def test_key_expires_whole_days_after_its_creation(days: int) -> None:
    assert checks.expires_at_us(NOW, days) == to_micros(NOW + timedelta(days=days))


@pytest.mark.parametrize("days", [-30, 0, 1, 31, 366])
def test_other_expiry_is_refused(days: int) -> None:
    with pytest.raises(LegatoError) as caught:
        checks.expires_at_us(NOW, days)
    assert caught.value.param == "expires_after_days"
