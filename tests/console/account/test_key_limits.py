"""Rate limits of keys, and who set them."""

from tests.console.harness import ConsoleHarness


def test_limits_name_who_set_them(console: ConsoleHarness) -> None:
    console.backends.fill()
    page = console.get("/keys/key_0000000000000001", console.auth.sign_in())
    for source in ("Set on this key", "The account&#39;s limit", "The service&#39;s default"):
        assert source in page.text
