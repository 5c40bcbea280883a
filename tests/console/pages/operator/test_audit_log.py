"""The audit log of the whole service."""

from tests.console.harness import ConsoleHarness


def test_the_audit_log_is_filtered_and_its_chain_checked(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/audit-log?action=key&user=user_1", session).text
    assert "Key revoked" in text
    assert "Account suspended" not in text
    assert "The chain is whole" in console.post("/operator/audit-log/verify", session=session).text
    console.auth.falsify_event(2)
    answer = console.post("/operator/audit-log/verify", session=session).text
    assert "The chain is broken" in answer
    assert "at: 2." in answer
