"""Removing a member: which keys they made, and which of them go on working."""

from services.chassis.access_tokens import AccountRole
from tests.console.harness import ConsoleHarness

PATH = "/settings/members/user_2/remove"


def test_the_keys_of_a_member_are_listed_and_revoked_unless_they_are_kept(console: ConsoleHarness) -> None:
    console.backends.fill()
    kept, lost = (console.auth.add_key("Website chat") for _ in range(2))
    session = console.auth.sign_in()
    page = console.get(PATH, session).text
    assert "Remove Charles Babbage" in page
    for shown in (kept.key_id, lost.key_id, "Website chat"):
        assert shown in page
    # Nothing is kept unless it is asked for, and others' keys are not listed.
    assert "checked" not in page
    assert "Nightly report" not in page
    answer = console.post("/settings/members/remove", {"user_id": "user_2", "kept_key_ids": kept.key_id}, session)
    assert (answer.status, answer.headers["location"]) == (303, "/settings")
    assert console.auth.key(kept.key_id).revoked_at_us is None
    assert console.auth.key(lost.key_id).revoked_at_us is not None
    assert "Nightly report" in {each.name for each in console.auth.list_keys() if each.revoked_at_us is None}


def test_a_member_who_leaves_sees_the_keys_that_end_and_keeps_none(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.set_role(AccountRole.MEMBER)
    session = console.auth.sign_in()
    page = console.get("/settings/members/user_1/remove", session).text
    assert "Nightly report" in page
    assert "kept_key_ids" not in page
    for path in (PATH, "/settings/members/user_9/remove"):
        assert console.get(path, session).status == 404
