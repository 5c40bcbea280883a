"""Proof that is asked for again, and what goes on after it."""

import html
import re
from urllib.parse import quote

from tests.console.auth import KEY_PATTERN
from tests.console.auth_rows import CODE, EMAIL, PASSWORD, RECOVERY_CODE, RECOVERY_CODES, TOTP_CODE
from tests.console.harness import ConsoleHarness


def test_what_grants_access_asks_again_who_it_is_and_then_goes_on(console: ConsoleHarness) -> None:
    console.auth.add_recovery_codes()
    console.auth.grow_stale()
    session = console.auth.sign_in()
    fields = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "30", "form_id": "f1"}
    asked = console.post("/keys", fields, session)
    assert asked.status == 403
    assert "Confirm that it is you" in asked.text
    assert console.auth.list_keys() == []
    [pending] = set(re.findall(r'name="pending" value="([^"]+)"', asked.text))
    pending = pending.replace("&#34;", '"')
    wrong = console.post("/confirm", {"pending": pending, "kind": "recovery", "code": "no"}, session)
    assert wrong.status == 401
    done = console.post("/confirm", {"pending": pending, "kind": "recovery", "code": RECOVERY_CODE}, session)
    [cookie, _shown] = done.cookies
    assert session not in cookie
    assert KEY_PATTERN.search(console.follow(done, session).text)
    assert [each.name for each in console.auth.list_keys()] == ["Report"]
    assert console.get("/keys", session).status == 303


def test_a_page_that_asks_who_it_is_leads_on_with_its_query(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    console.auth.grow_stale()
    session = console.auth.sign_in()
    path = "/security/passkeys/new?from=menu&again=1"
    asked = console.get(path, session)
    assert f"/sign-in/sso?again=1&amp;next={quote(path, safe='/')}" in asked.text
    [pending] = set(re.findall(r'name="pending" value="([^"]+)"', asked.text))
    fields = {"pending": html.unescape(pending), "kind": "recovery", "code": RECOVERY_CODE}
    assert console.post("/confirm", fields, session).headers["location"] == path


def test_a_confirmed_request_can_only_be_one_of_the_pages(console: ConsoleHarness) -> None:
    console.auth.add_recovery_codes()
    for code, path in zip(RECOVERY_CODES, ("/sign-out", "/nowhere", "https://evil.example/"), strict=False):
        pending = f'{{"method": "POST", "path": "{path}", "fields": []}}'
        fields = {"pending": pending, "kind": "recovery", "code": code}
        assert console.post("/confirm", fields, console.auth.sign_in()).status == 400


def test_what_removes_access_never_asks_again(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.grow_stale()
    session = console.auth.sign_in()
    for path, fields in {
        "/keys/key_0000000000000001/revoke": {},
        "/security/sessions/end": {},
        "/security/passkeys/remove": {"passkey_id": "pk_1"},
        "/settings/members/remove": {"user_id": "user_2"},
    }.items():
        assert console.post(path, fields, session).status == 303


def test_a_mailed_code_confirms_and_goes_on_with_what_was_asked(console: ConsoleHarness) -> None:
    console.auth.offer("mail")
    console.auth.grow_stale()
    session = console.auth.sign_in()
    asked = console.get("/security/passkeys/new", session)
    # With mail, a first passkey needs the proof that mail is.
    assert ("Mail me a code" in asked.text, "Add a passkey" in asked.text) == (True, False)
    [pending] = {html.unescape(each) for each in re.findall(r'name="pending" value="([^"]+)"', asked.text)}
    sent = console.post("/confirm/mail", {"pending": pending}, session)
    code = console.auth.mailed_code()
    assert console.auth.mail_box.messages[-1]["To"] == EMAIL
    assert "A code is on its way to your address" in sent.text
    assert {html.unescape(each) for each in re.findall(r'name="pending" value="([^"]+)"', sent.text)} == {pending}
    done = console.post("/confirm", {"pending": pending, "kind": "link", "code": code}, session)
    assert done.headers["location"] == "/security/passkeys/new"


def test_a_user_who_has_been_mailed_too_much_is_told_to_wait(console: ConsoleHarness) -> None:
    console.auth.offer("mail")
    console.auth.grow_stale()
    session = console.auth.sign_in()
    answers = [console.post("/confirm/mail", {"pending": "{}"}, session) for _ in range(4)]
    assert [answer.status for answer in answers] == [403, 403, 403, 429]
    assert "Try again in 60 seconds" in answers[-1].text


def test_the_hint_has_a_command_that_makes_a_link_for_this_user(console: ConsoleHarness) -> None:
    console.auth.grow_stale()
    session = console.auth.sign_in()
    asked = console.get("/security/passkeys/new", session)
    assert "legato users sign-in-link user_1" in asked.text
    # Some paste the whole link.
    pending = '{"method": "GET", "path": "/security/password", "fields": []}'
    fields = {"pending": pending, "kind": "link", "code": f"{console.origin}/sign-in#{CODE}"}
    assert console.post("/confirm", fields, session).headers["location"] == "/security/password"


def test_a_step_up_by_password_goes_on_with_what_was_asked(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    console.auth.grow_stale()
    pending = '{"method": "GET", "path": "/security/password", "fields": []}'
    fields = {"pending": pending, "kind": "password", "password": PASSWORD, "code": TOTP_CODE}
    done = console.post("/confirm", fields, session)
    assert (done.status, done.headers["location"]) == (303, "/security/password")
