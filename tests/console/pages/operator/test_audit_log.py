"""The audit log of the whole service."""

import re

from tests.console.auth_rows import OTHER_ACCOUNT_ID
from tests.console.harness import ConsoleHarness


def test_the_audit_log_is_filtered_and_its_chain_checked(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/audit-log?action=key&user=user_1", session).text
    assert "revoked the key “Old laptop”" in text
    assert "suspended the account" not in text
    assert "The chain is whole" in console.post("/operator/audit-log/verify", session=session).text
    console.auth.falsify_event(2)
    answer = console.post("/operator/audit-log/verify", session=session).text
    assert "The chain is broken" in answer
    assert "at: 2." in answer


def test_events_of_all_accounts_have_the_names_of_their_accounts(console: ConsoleHarness, session: str) -> None:
    page = console.get("/operator/audit-log", session).text
    assert f'<a href="/operator/accounts/{OTHER_ACCOUNT_ID}">Menabrea Mills</a>' in page
    assert "The command line made Ada Lovelace an operator" in page
    narrowed = console.get(f"/operator/audit-log?account={OTHER_ACCOUNT_ID}&object=key_0000000000000103", session).text
    assert "revoked the key" in narrowed
    assert "created the user" not in narrowed


def test_events_are_in_the_order_of_time_though_some_were_told_later(console: ConsoleHarness, session: str) -> None:
    console.backends.fill()
    times = re.findall(r'<td><time datetime="([^"]+)"', console.get("/operator/audit-log", session).text)
    assert len(times) > 5
    assert times == sorted(times, reverse=True)
