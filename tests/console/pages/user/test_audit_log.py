"""What the signed-in user did."""

from services.chassis.access_tokens import AccountRole
from tests.console.harness import ConsoleHarness


def test_members_see_what_they_did_and_nothing_else(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.fill_operator()
    console.auth.set_role(AccountRole.MEMBER)
    session = console.auth.sign_in()
    page = console.get("/security/audit-log?user=user_2", session).text
    assert "Ada Lovelace added the passkey “Work laptop”" in page
    assert "Ada Lovelace could not confirm who they are" in page
    assert "The command line" not in page
    refused = console.get("/security/audit-log?refused=on", session).text
    assert "could not confirm" in refused
    assert "Work laptop" not in refused
    # The security page shows the newest of them.
    assert "Ada Lovelace signed in, by a passkey" in console.get("/security", session).text
