"""The security page."""

import re

from tests.console.auth import ISSUER_HOST
from tests.console.harness import COOKIE, ConsoleHarness


def test_the_last_way_to_sign_in_cannot_be_removed(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    console.auth.remove_recovery_codes()
    assert console.post("/security/passkeys/remove", {"passkey_id": "pk_2"}, session).status == 303
    answer = console.post("/security/passkeys/remove", {"passkey_id": "pk_1"}, session)
    assert answer.status == 400
    assert "This is your last way to sign in" in answer.text


def test_the_security_page_takes_four_calls_beside_that_for_the_credit(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    console.backends.calls.clear()
    page = console.get("/security", session)
    assert ISSUER_HOST in page.text
    assert len(console.backends.calls) == 5


def test_browsers_of_sessions_are_named_in_the_language_of_the_visit(console: ConsoleHarness) -> None:
    console.backends.fill()
    cookie = {"Cookie": f"{COOKIE}={console.auth.sign_in()}; legato-language=fr"}
    text = console.get("/security", headers=cookie).text
    sessions = text[text.index("/security/sessions/end") :]
    assert " sur " in sessions
    assert re.findall(r"<strong>\w+ on \w+</strong>", sessions) == []
