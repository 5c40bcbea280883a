"""Answers to a browser about pages of other origins."""

from typing import Any

import pytest

from edge.wire.requests import Cors
from services.chassis.settings import SettingsError

PAGE = b"https://app.example"


def scope(origin: bytes | None = PAGE, **further: bytes) -> dict[str, Any]:
    headers = [(name.replace("_", "-").encode(), value) for name, value in further.items()]
    return {"headers": headers if origin is None else [(b"origin", origin), *headers]}


def test_page_of_any_origin_may_read_the_answer_and_its_headers() -> None:
    headers = dict(Cors().headers(scope()))

    assert headers[b"access-control-allow-origin"] == b"*"
    exposed = headers[b"access-control-expose-headers"].split(b", ")
    assert {b"x-request-id", b"retry-after", b"x-ratelimit-remaining-tokens"} <= {name.strip() for name in exposed}


def test_answer_to_no_page_carries_nothing_of_it() -> None:
    assert Cors().headers(scope(origin=None)) == []


def test_browser_is_told_that_its_page_may_send_what_it_asks_for() -> None:
    asked = b"authorization,content-type,x-stainless-os"

    headers = dict(Cors().preflight(scope(access_control_request_headers=asked)))

    assert headers[b"access-control-allow-headers"] == asked
    assert b"POST" in headers[b"access-control-allow-methods"]


def test_only_the_origins_in_the_settings_are_let_in() -> None:
    cors = Cors("https://app.example, https://other.example")

    assert dict(cors.headers(scope()))[b"access-control-allow-origin"] == PAGE
    assert cors.headers(scope(b"https://evil.example")) == []


@pytest.mark.parametrize("others", ["", "https://app.example", "*"])
def test_the_console_is_let_in_whatever_other_pages_are(others: str) -> None:
    cors = Cors(others, "https://Console.example/, http://localhost:8081")
    for origin in (b"https://console.example", b"http://localhost:8081"):
        allowed = dict(cors.headers(scope(origin)))[b"access-control-allow-origin"]
        assert allowed == (b"*" if others == "*" else origin)


def test_the_consoles_origin_is_not_every_origin() -> None:
    with pytest.raises(SettingsError):
        Cors("", "*")


def test_empty_setting_lets_no_page_in() -> None:
    assert Cors("").headers(scope()) == []


@pytest.mark.parametrize(
    "origin", ["https://app.example/", "app.example", "https://app.example/page", "https://App.test"]
)
def test_origin_that_no_browser_would_name_is_a_mistake(origin: str) -> None:
    with pytest.raises(SettingsError, match=f"LEGATO_CORS_ORIGINS: .*, not {origin}$"):
        Cors(f"https://other.example,{origin}")


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "http://[::1]:3000", "chrome-extension://abc", "null", "*"]
)
def test_origin_that_a_browser_names_is_taken(origin: str) -> None:
    assert Cors(origin).headers(scope(origin=origin.encode()))
