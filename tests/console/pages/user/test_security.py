"""The security page."""

from tests.console.harness import ConsoleHarness


def test_the_last_way_to_sign_in_cannot_be_removed(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.passkeys.pop()
    answer = console.post("/security/passkeys/remove", {"passkey_id": "pk_1"}, console.fakes.sign_in())
    assert answer.status == 400
    assert "cannot be removed" in answer.text


def test_the_security_page_takes_four_calls(console: ConsoleHarness) -> None:
    console.fakes.offer_everything()
    session = console.fakes.sign_in()
    console.fakes.calls.clear()
    page = console.get("/security", session)
    assert "login.example.ca" in page.text
    assert len(console.fakes.calls) == 4
