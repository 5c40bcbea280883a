"""Notices that could not be delivered."""

from tests.console.harness import ConsoleHarness


def test_dead_letters_of_all_accounts_are_shown_without_what_they_say(console: ConsoleHarness, session: str) -> None:
    assert "Everything was delivered" in console.get("/operator/dead-letters", session).text
    console.backends.fill_notices()
    console.auth.fill_dead_letters()
    text = console.get("/operator/dead-letters", session).text
    for words in ("hooks.example.ca", "HTTP 503", "12", "Mail to owners", "/operator/accounts/acct_0000000000000001"):
        assert words in text
    assert "spend limit" not in text
