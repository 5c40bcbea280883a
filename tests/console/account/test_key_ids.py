"""Keys by their public ids."""

from services.auth.core.key_format import ApiKey
from tests.console.harness import ConsoleHarness


def test_a_leaked_key_of_another_account_is_not_identified(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert console.post("/keys/identify", {"key_id": "key_ABCDEFGHIJKLMNOP"}, session).status == 404
    assert (
        console.post("/keys/identify", {"key_id": ApiKey("0123456789ABCDEF", "a" * 33).reveal()}, session).status == 400
    )
    console.backends.fill()
    found = console.post("/keys/identify", {"key_id": "key_0000000000000002"}, session)
    assert found.headers["location"] == "/keys/key_0000000000000002"
