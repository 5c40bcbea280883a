"""The places of pages, and those of the payment provider's events."""

import contextlib
import ipaddress

import pytest

from console.web.request_limit import RequestLimit
from services.chassis.http.addresses import Addresses
from tests.console.auth_rows import CODE
from tests.console.harness import ConsoleHarness
from tests.support.outside.stripe_server import sign


def fill(places: contextlib.ExitStack, limit: RequestLimit) -> None:
    """Takes all that there is, for others."""
    for number in range(limit.most):
        places.enter_context(limit.place(ipaddress.ip_address(f"203.0.113.{number % 250}")))


def test_events_are_taken_when_there_is_no_place_for_another_page(console: ConsoleHarness) -> None:
    with contextlib.ExitStack() as places:
        fill(places, console.capacity.pages)
        answer = console.get("/sign-in")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.text == "Capacity for another request is not available right now. Please retry.\n"
        assert console.send_event(*sign(b"{}")).status == 200
    assert console.get("/sign-in").status == 200


def test_pages_are_answered_when_there_is_no_place_for_another_event(console: ConsoleHarness) -> None:
    with contextlib.ExitStack() as places:
        fill(places, console.capacity.webhooks)
        assert console.send_event(*sign(b"{}")).status == 503
        assert console.get("/sign-in").status == 200
    assert console.send_event(*sign(b"{}")).status == 200


def test_form_that_says_it_is_too_large_is_refused_before_it_comes(console: ConsoleHarness) -> None:
    answer = console.post("/sign-in", {}, headers={"Content-Length": "1000000000"})
    assert answer.status == 413


def test_proxy_that_is_trusted_names_the_client(console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    forwarded = {"X-Forwarded-For": "203.0.113.9"}
    console.post("/sign-in", {"code": CODE}, headers=forwarded)
    monkeypatch.setattr(console.capacity, "addresses", Addresses("127.0.0.1"))
    console.post("/sign-in", {"code": CODE}, headers=forwarded)
    clients = [request.client.address for request in console.backends.requests if hasattr(request, "client")]
    assert clients == ["127.0.0.1", "203.0.113.9"]
