"""Invitations: shown, accepted, and by whom."""

from tests.console.auth_rows import INVITATION
from tests.console.harness import COOKIE, ConsoleHarness


def test_showing_an_invitation_consumes_nothing_and_accepting_signs_in(console: ConsoleHarness) -> None:
    shown = console.post("/invitation", {"code": INVITATION})
    assert "Join Analytical Engines" in shown.text
    assert "Charles Babbage" in shown.text
    assert len(console.auth.invitations()) == 1
    accepted = console.post("/invitation/accept", {"code": INVITATION, "name": "Grace"})
    assert accepted.headers["location"] == "/security/passkeys/new"
    assert any(cookie.startswith(COOKIE) for cookie in accepted.cookies)
    assert console.auth.invitations() == []
    wrong = console.post("/invitation", {"code": "AAAA"})
    assert wrong.status == 401
    assert "Analytical" not in wrong.text


def test_an_invitation_asks_who_accepts_it(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    shown = console.post("/invitation", {"code": INVITATION}, session)
    assert "Accept as Ada Lovelace" in shown.text
    assert "Accept as a new user" in shown.text
    fields = {"code": INVITATION, "name": "Grace", "as_new": "yes"}
    accepted = console.post("/invitation/accept", fields, session)
    assert accepted.headers["location"] == "/security/passkeys/new"
    assert [user.name for user in console.auth.users()] == ["Ada Lovelace", "Charles Babbage", "Grace"]
    assert console.get("/keys", session).status == 303
