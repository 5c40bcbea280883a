"""Rate limits of keys, and who set them."""

from console.account.key_limits import limits_of
from legato_protos.auth.v1.auth_pb2 import Account, Key, RateLimits
from tests.console.harness import ConsoleHarness


def test_limits_name_who_set_them(console: ConsoleHarness) -> None:
    console.backends.fill()
    page = console.get("/keys/key_0000000000000001", console.auth.sign_in())
    for source in ("Set on this key", "The account&#39;s limit", "The service&#39;s default"):
        assert source in page.text


def test_a_limit_is_a_number_wherever_it_comes_from() -> None:
    service = RateLimits(requests_per_minute=3_000)
    requests, tokens, at_once = limits_of(Key(), Account(tokens_per_minute=7_000, default_limits=service))
    assert (requests.words, requests.source) == ("3,000", "The service's default")
    assert requests.hint == "Empty: 3,000 (the service's default)."
    assert (tokens.words, tokens.source) == ("7,000", "The account's limit")
    assert at_once.words == "Unlimited"
    [own, *_others] = limits_of(Key(requests_per_minute=60), Account(default_limits=service))
    assert (own.words, own.source, own.hint) == ("60", "Set on this key", requests.hint)


def test_an_earlier_auth_does_not_tell_the_default() -> None:
    assert limits_of(Key(), Account())[0].words == "Not known"
