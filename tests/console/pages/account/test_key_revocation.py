"""Revoking keys: one, or several that are chosen in the list."""

import re

from services.auth.core.records.accounts import KeyLimits
from services.chassis.access_tokens import AccountRole
from tests.console.backends import not_answering
from tests.console.clock import NOW_US
from tests.console.harness import COOKIE, ConsoleHarness

FIRST, OF_MEMBER, LAST, REVOKED = (f"key_{number:016d}" for number in range(1, 5))


def chosen(*key_ids: str) -> str:
    return "/keys/revoke?" + "&".join(f"key={key_id}" for key_id in key_ids)


def revoked_in(console: ConsoleHarness) -> list[str]:
    """Returns what the visitor has revoked by now."""
    return [key.key_id for key in console.auth.list_keys() if key.revoked_at_us == NOW_US]


def test_revoking_says_how_long_it_took_until_every_edge_refuses(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    answer = console.post("/keys/key_0000000000000001/revoke", session=session)
    assert (answer.status, answer.headers["location"]) == (303, "/keys/key_0000000000000001")
    [notice] = [cookie for cookie in answer.cookies if cookie.startswith("legato-notice=")]
    shown = console.get("/keys/key_0000000000000001", headers={"Cookie": f"{COOKIE}={session}; {notice.split(';')[0]}"})
    assert re.search(r"It took effect on every edge \d+\.\d s after you clicked", shown.text)
    assert any(cookie.startswith('legato-notice=""; ') for cookie in shown.cookies)


def test_chosen_keys_are_named_before_anything_is_revoked(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    listed = console.get("/keys", session).text
    assert len(re.findall(r'type="checkbox" name="key" value="key_\d{16}"', listed)) == 3
    assert len(re.findall(r'value="key_\d{16}" checked', console.get("/keys?choose=all", session).text)) == 3
    page = console.get(chosen(FIRST, LAST, LAST, REVOKED, "key_000000000000none", "key_0000000000009999"), session).text
    assert "2 keys will stop working" in page
    for name in ("Nightly report", "Old laptop", "Last used"):
        assert name in page
    assert re.findall(r'name="key" value="(\w+)"', page) == [FIRST, LAST]
    assert "It is revoked already" in page
    assert revoked_in(console) == []
    nothing = console.post("/keys/revoke", {}, session)
    assert (nothing.status, nothing.headers["location"]) == (303, "/keys/revoke")
    assert "No key is chosen that you can revoke" in console.follow(nothing, session).text


def test_all_chosen_keys_are_revoked_and_the_page_says_how_many_and_after_how_long(console: ConsoleHarness) -> None:
    console.backends.fill()
    # Removing access needs no proof.
    console.auth.grow_stale()
    answer = console.post("/keys/revoke", {"key": [FIRST, OF_MEMBER, LAST]}, console.auth.sign_in())
    assert answer.status == 200
    assert re.search(r"3 keys are revoked. It took effect on every edge \d+\.\d s after you clicked", answer.text)
    assert revoked_in(console) == [FIRST, OF_MEMBER, LAST]
    assert len(console.auth.events("key.revoked")) == 3


def test_a_member_revokes_none_of_anothers_keys(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.MEMBER)
    console.backends.fill()
    session = console.auth.sign_in()
    asked = console.get(chosen(FIRST, OF_MEMBER), session).text
    assert "One key will stop working" in asked
    assert "Only an owner or whoever created it can revoke it" in asked
    # Whatever the page offers, the form may have any.
    answer = console.post("/keys/revoke", {"key": [OF_MEMBER, FIRST, "key_0000000000009999"]}, session)
    assert answer.status == 200
    assert "One key is revoked" in answer.text
    assert "2 keys were not revoked" in answer.text
    assert "This account has no such key" in answer.text
    assert "Try again" not in answer.text
    assert revoked_in(console) == [FIRST]
    alone = console.post("/keys/revoke", {"key": OF_MEMBER}, session)
    assert (alone.status, "are revoked" in alone.text) == (403, False)


def test_viewers_choose_no_keys(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    console.backends.fill()
    session = console.auth.sign_in()
    assert 'type="checkbox" name="key"' not in console.get("/keys", session).text
    assert console.post("/keys/revoke", {"key": [FIRST, LAST]}, session).status == 403
    assert revoked_in(console) == []


def test_keys_that_gave_no_answer_can_be_tried_again(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.fail = {"KeyAdminService.RevokeKey": not_answering()}
    answer = console.post("/keys/revoke", {"key": [FIRST, LAST]}, console.auth.sign_in())
    assert answer.status == 503
    assert "it may still work" in answer.text
    assert re.findall(r'name="key" value="(\w+)"', answer.text) == [FIRST, LAST]


def test_keys_without_a_secret_are_not_offered(console: ConsoleHarness) -> None:
    program = console.auth.add_key("billing-bot", caller_name="billing-bot", pepper_version=0, created_by="")
    key = console.auth.add_key("Report", limits=KeyLimits())
    session = console.auth.sign_in()
    assert f'name="key" value="{program.key_id}"' not in console.get("/keys", session).text
    page = console.get(chosen(program.key_id, key.key_id), session).text
    assert "It has no secret that could be revoked" in page
    assert re.findall(r'name="key" value="(\w+)"', page) == [key.key_id]
