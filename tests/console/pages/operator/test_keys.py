"""Whose a key is."""

from console.routes import PAGES
from services.auth.core.key_format import ApiKey
from tests.console.auth_rows import OTHER_ACCOUNT_ID, OTHER_KEY_ID
from tests.console.harness import ConsoleHarness

FOR_OPERATORS = [page for page in PAGES if page.needs_operator]


ACCOUNT = f"/operator/accounts/{OTHER_ACCOUNT_ID}"


def test_a_key_leads_to_its_owner_and_is_revoked(console: ConsoleHarness, session: str) -> None:
    found = console.post("/operator/keys", {"key_id": OTHER_KEY_ID}, session)
    assert found.headers["location"] == f"/operator/keys/{OTHER_KEY_ID}"
    page = console.get(found.headers["location"], session)
    assert ACCOUNT in page.text
    assert "Charles Babbage" in page.text
    assert console.post(f"/operator/keys/{OTHER_KEY_ID}/revoke", session=session).status == 303
    assert console.auth.key(OTHER_KEY_ID).revoked_at_us is not None


def test_a_whole_key_is_never_sent_on(console: ConsoleHarness, session: str) -> None:
    whole = ApiKey("0123456789ABCDEF", "a" * 33).reveal()
    answer = console.post("/operator/keys", {"key_id": whole}, session)
    assert answer.status == 400
    assert "KeyAdminService.GetKey" not in console.backends.calls
    assert whole not in answer.text


def test_a_key_that_never_was_ours_is_told_so(console: ConsoleHarness, session: str) -> None:
    answer = console.post("/operator/keys", {"key_id": "key_zzzzzzzzzzzzzzzz"}, session)
    assert answer.status == 404
    assert "never one of this service" in answer.text


def test_what_an_internal_program_is_counted_under_is_not_revoked_as_a_key(
    console: ConsoleHarness, session: str
) -> None:
    caller = console.auth.add_key("billing-bot", caller_name="billing-bot", pepper_version=0, created_by="")
    page = console.get(f"/operator/keys/{caller.key_id}", session).text
    assert "Operator, for the internal program billing-bot" in page
    assert "Revoke" not in page
