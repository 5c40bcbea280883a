"""Messages that a cookie carries to the next page."""

from tests.console.harness import COOKIE, ConsoleHarness


def test_a_notice_is_never_text_from_a_cookie(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for forged in ("<b>hi</b>.1", "key-revoked.x", "key-revoked", "unknown.3"):
        answer = console.get("/", headers={"Cookie": f"{COOKIE}={session}; legato-notice={forged}"})
        assert 'role="status"' not in answer.text
