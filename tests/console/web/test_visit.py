"""One request to the console."""

from dataclasses import replace

from starlette.requests import Request

from console.web.forms import Form
from console.web.visit import Visit
from tests.console.harness import COOKIE, ConsoleHarness


def test_the_operators_own_console_shares_no_cookie_with_the_console_for_owners(console: ConsoleHarness) -> None:
    headers = [(b"cookie", f"{COOKIE}=owner; legato-account=acct_1".encode()), (b"user-agent", b"Chrome/1")]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": headers})
    owners = Visit(console.console, request, Form([]))
    operators = Visit(replace(console.console, public_origin="http://localhost:1"), request, Form([]))
    assert (owners.session_token, operators.session_token) == ("owner", "")
    for visit in (owners, operators):
        visit.sign_in("token")
        visit.choose_account("acct_2")
        visit.redirect("/", "key-renamed")
    assert set(owners.cookies).isdisjoint(operators.cookies)
    assert len(owners.cookies) == len(operators.cookies) == 3
