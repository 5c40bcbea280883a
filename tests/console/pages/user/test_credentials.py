"""Pages of passwords, authenticator apps and single sign-on, over HTTP."""

import base64
import re

from services.auth.sign_in.rules.totp import STEP_US, code_at
from tests.console.auth_rows import PASSWORD
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness


def test_a_password_is_set_and_never_shown(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    console.auth.remove_password()
    session = console.auth.sign_in()
    fields = {"password": PASSWORD, "repeated_password": PASSWORD}
    done = console.post("/security/password", fields, session)
    assert (done.status, done.headers["location"]) == (303, "/security/authenticator")
    other = console.post("/security/password", {**fields, "repeated_password": "x"}, session)
    assert other.status == 400
    console.auth.grow_stale()
    asked = console.post("/security/password", fields, session)
    for page in (other, asked):
        assert PASSWORD not in page.text


def test_an_authenticator_app_is_set_up_with_a_picture_and_a_key(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    page = console.get("/security/authenticator", session)
    assert '<svg viewBox="0 0' in page.text
    [secret] = re.findall(r"(?:[A-Z2-7]{4} ){7}[A-Z2-7]{4}", page.text)
    [challenge] = re.findall(r'name="challenge" value="(\w+)"', page.text)
    # It has a secret.
    assert (
        "content-encoding" not in console.get("/security/authenticator", session, {"Accept-Encoding": "gzip"}).headers
    )
    wrong = console.post("/security/authenticator", {"challenge": challenge, "code": "000000"}, session)
    assert wrong.status == 400
    assert "the picture is the same" in wrong.text
    late = console.post("/security/authenticator", {"challenge": "totp_0", "code": "000000"}, session)
    assert "the picture is a new one" in late.text
    code = code_at(base64.b32decode(secret.replace(" ", "")), NOW_US // STEP_US)
    done = console.post("/security/authenticator", {"challenge": challenge, "code": code}, session)
    assert (done.status, done.headers["location"]) == (303, "/security")
