"""Removing a member: which keys they made, and which of them go on working."""

from protos.auth.v1 import auth_pb2
from protos.type.v1 import access_token_pb2
from tests.console.harness import ConsoleHarness

PATH = "/settings/members/user_2/remove"


def test_the_keys_of_a_member_are_listed_and_revoked_unless_they_are_kept(console: ConsoleHarness) -> None:
    console.fakes.fill()
    kept, lost = (console.fakes.add_key("Website chat") for _ in range(2))
    session = console.fakes.sign_in()
    page = console.get(PATH, session).text
    assert "Remove Charles Babbage" in page
    for shown in (kept.key_id, lost.key_id, "Website chat"):
        assert shown in page
    # Nothing is kept unless it is asked for, and others' keys are not listed.
    assert "checked" not in page
    assert "Nightly report" not in page
    answer = console.post("/settings/members/remove", {"user_id": "user_2", "kept_key_ids": kept.key_id}, session)
    assert (answer.status, answer.headers["location"]) == (303, "/settings")
    assert console.fakes.find(kept.key_id).state == auth_pb2.KEY_STATE_ACTIVE
    assert console.fakes.find(lost.key_id).state == auth_pb2.KEY_STATE_REVOKED
    assert "Nightly report" in {each.name for each in console.fakes.keys if each.state == 1}


def test_a_member_who_leaves_sees_the_keys_that_end_and_keeps_none(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_MEMBER
    session = console.fakes.sign_in()
    page = console.get("/settings/members/user_1/remove", session).text
    assert "Nightly report" in page
    assert "kept_key_ids" not in page
    for path in (PATH, "/settings/members/user_9/remove"):
        assert console.get(path, session).status == 404
