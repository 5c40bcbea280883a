"""Changes in words."""

from collections.abc import Callable

from console.display.change_words import FIELDS, NOTICE_KINDS, change_words
from services.auth.core import changes as audit_changes
from services.auth.notices.records import KINDS
from services.chassis.changes import Change


def test_every_field_and_kind_of_the_log_has_words() -> None:
    assert set(FIELDS) == set(audit_changes.FIELDS)
    assert set(NOTICE_KINDS) == set(KINDS)


def test_changes_are_told_with_what_was_before_and_in_units_that_people_read() -> None:
    for change, expected in (
        (Change("requests_per_minute", 600, 1200), "Requests a minute: from 600 to 1,200"),
        (Change("tokens_per_minute", None, 5), "Tokens a minute: from no limit of its own to 5"),
        (Change("allowed_classes", ("mezzo", "forte"), None), "Classes: from mezzo and forte to all"),
        (Change("scopes", (), ("usage",)), "What it may do: from Everything to Read usage"),
        (Change("search", True, False), "Web search: from on to off"),
        (Change("role", "member", "owner"), "Role: from Member to Owner"),
        (Change("spend_month_nanos", 5 * 10**9, None), "Spend limit by month: from $5.00 a month to no limit"),
        (Change("muted_kinds", (), ("balance.low",)), "Not mailed: from none to Low balance"),
        (Change("of_a_later_release", 1, 2), "of_a_later_release: from not known here to not known here"),
    ):
        assert change_words(change) == expected


def test_of_what_is_new_or_gone_only_what_it_is_or_was_is_told() -> None:
    expiry = Change("expires_at_us", None, 1_790_000_000_000_000)
    assert change_words(expiry, is_new=True) == "Expires: 21 Sep 2026, 14:13 UTC"
    assert change_words(Change("webhook_host", "hooks.example.ca", None), is_new=True) == "Webhook: hooks.example.ca"


def test_changes_are_told_in_french(in_french: Callable[[], None]) -> None:
    in_french()
    words = change_words(Change("search", True, False))
    expiry = change_words(Change("expires_at_us", None, 1_790_000_000_000_000), is_new=True)
    assert expiry.endswith("21 sept. 2026, 14\u00a0h\u00a013 UTC")
    assert words == "Recherche Web\u00a0: de «\u00a0oui\u00a0» à «\u00a0non\u00a0»"
    unset = change_words(Change("preferred_class", None, "forte"))
    assert unset.replace("\u00a0", " ") == "Ce que « auto » signifie : de « aucune classe » à « forte »"
