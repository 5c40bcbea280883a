"""Pages of passwords, authenticator apps and single sign-on, over HTTP with fake services behind them."""

import re

from tests.console.fakes.credentials import PASSWORD, TOTP_SECRET
from tests.console.harness import ConsoleHarness


def test_a_password_is_set_and_never_shown(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    console.fakes.has_password = False
    session = console.fakes.sign_in()
    fields = {"password": PASSWORD, "repeated_password": PASSWORD}
    done = console.post("/security/password", fields, session)
    assert (done.status, done.headers["location"]) == (303, "/security/authenticator")
    other = console.post("/security/password", {**fields, "repeated_password": "x"}, session)
    assert other.status == 400
    console.fakes.is_fresh = False
    asked = console.post("/security/password", fields, session)
    for page in (other, asked):
        assert PASSWORD not in page.text


def test_an_authenticator_app_is_set_up_with_a_picture_and_a_key(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    page = console.get("/security/authenticator", session)
    assert '<svg viewBox="0 0' in page.text
    assert " ".join(re.findall("....", TOTP_SECRET)) in page.text
    # It has a secret.
    assert (
        "content-encoding" not in console.get("/security/authenticator", session, {"Accept-Encoding": "gzip"}).headers
    )
    wrong = console.post("/security/authenticator", {"challenge": "totp_1", "code": "000000"}, session)
    assert wrong.status == 400
    assert "the picture is the same" in wrong.text
    late = console.post("/security/authenticator", {"challenge": "totp_0", "code": "000000"}, session)
    assert "the picture is a new one" in late.text
    done = console.post("/security/authenticator", {"challenge": "totp_1", "code": "123456"}, session)
    assert (done.status, done.headers["location"]) == (303, "/security")
