"""The origins that the settings name."""

import pytest

from edge.wire.origins import parse_origins
from services.chassis.settings import SettingsError


def test_the_consoles_origin_is_not_every_origin() -> None:
    with pytest.raises(SettingsError):
        parse_origins("", "*")


@pytest.mark.parametrize(
    "origin", ["https://app.example/", "app.example", "https://app.example/page", "https://App.test"]
)
def test_origin_that_no_browser_would_name_is_a_mistake(origin: str) -> None:
    with pytest.raises(SettingsError, match=f"LEGATO_CORS_ORIGINS: .*, not {origin}$"):
        parse_origins(f"https://other.example,{origin}")


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://[::1]:3000", "chrome-extension://abc", "null", "*"]
)
def test_origin_that_a_browser_names_is_taken(origin: str) -> None:
    assert parse_origins(origin) == (origin,)


def test_the_consoles_origins_come_in_the_form_that_browsers_send() -> None:
    assert parse_origins("", "https://Console.example/, http://localhost:8081") == (
        "https://console.example",
        "http://localhost:8081",
    )
