"""Answers to a browser about pages of other origins."""

from collections.abc import Sequence
from typing import Any

import pytest

from edge.api.cors import EdgeCorsMiddleware
from edge.wire.origins import parse_origins
from services.chassis.http.asgi import HttpScope, Receive, Send

PAGE = "https://app.example"


async def hello(scope: HttpScope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def answered(
    origins: Sequence[str] = parse_origins(), method: str = "GET", **headers: str
) -> tuple[int, dict[str, str]]:
    """Returns the status and the headers of the answer to a request with these headers."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any: ...

    scope: HttpScope = {"type": "http", "method": method, "headers": given}
    await EdgeCorsMiddleware(hello, origins)(scope, receive, send)
    return sent[0]["status"], {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}


async def test_page_of_any_origin_may_read_the_answer_and_its_headers() -> None:
    _, headers = await answered(origin=PAGE)
    assert headers["access-control-allow-origin"] == "*"
    exposed = set(headers["access-control-expose-headers"].split(", "))
    assert {"x-request-id", "retry-after", "x-ratelimit-remaining-tokens"} <= exposed


async def test_answer_to_no_page_carries_nothing_of_it() -> None:
    assert await answered() == (200, {"content-length": "0"})


async def test_browser_is_told_that_its_page_may_send_what_it_asks_for() -> None:
    asked = "authorization,content-type,x-stainless-os"
    status, headers = await answered(
        method="OPTIONS",
        origin=PAGE,
        access_control_request_method="POST",
        access_control_request_headers=asked,
    )
    assert status == 204
    assert headers["access-control-allow-headers"] == asked
    assert "POST" in headers["access-control-allow-methods"]
    assert headers["access-control-allow-origin"] == "*"


async def test_only_the_origins_in_the_settings_are_let_in() -> None:
    origins = parse_origins("https://app.example, https://other.example")
    assert (await answered(origins, origin=PAGE))[1]["access-control-allow-origin"] == PAGE
    assert "access-control-allow-origin" not in (await answered(origins, origin="https://evil.example"))[1]


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
async def test_a_page_that_is_not_let_in_gets_the_same_status(method: str) -> None:
    origins = parse_origins("https://app.example")
    asked = {"access_control_request_method": "POST"}
    statuses = {(await answered(origins, method, origin=page, **asked))[0] for page in (PAGE, "https://evil.example")}
    assert statuses == {204 if method == "OPTIONS" else 200}


@pytest.mark.parametrize("others", ["", "https://app.example", "*"])
async def test_the_console_is_let_in_whatever_other_pages_are(others: str) -> None:
    origins = parse_origins(others, "https://Console.example/, http://localhost:8081")
    for origin in ("https://console.example", "http://localhost:8081"):
        allowed = (await answered(origins, origin=origin))[1]["access-control-allow-origin"]
        assert allowed == ("*" if others == "*" else origin)


async def test_empty_setting_lets_no_page_in() -> None:
    assert "access-control-allow-origin" not in (await answered(parse_origins(""), origin=PAGE))[1]
