"""Secrets that have versions, so that they can be replaced."""

import pytest

from services.chassis.settings import SettingsError
from services.chassis.versioned_secrets import parse_versioned_secrets


def test_secrets_are_found_by_their_versions() -> None:
    given = f"2:{'AB' * 32}, 1:{'cd' * 40}"
    assert parse_versioned_secrets("LEGATO_X", given) == {2: b"\xab" * 32, 1: b"\xcd" * 40}


def test_every_mistake_is_named_and_nothing_is_quoted() -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_versioned_secrets("LEGATO_X", f"secret,1:{'ab' * 31},1:{'cd' * 32}")
    assert str(refusal.value).splitlines() == [
        "LEGATO_X: entry 1 is not VERSION:HEX, as in 1:0f3a…",
        "LEGATO_X: version 1 has fewer than 32 bytes",
        "LEGATO_X: version 1 is given twice",
    ]
