"""A user's own data: what is stored, the file with all of it, and the deletion with its receipt."""

import csv
import io
import json
import re
import zipfile

import pytest

from services.chassis.access_tokens import AccountRole
from tests.console.auth_rows import EMAIL, MEMBER_ID, RECOVERY_CODE, USER_ID
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness

NAME = "Ada Lovelace"


def rows(archive: zipfile.ZipFile, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(archive.read(name).decode())))


def test_the_page_says_what_is_kept_and_offers_each_what_is_theirs_to_do(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    page = console.get("/my-data", session).text
    for shown in ("Messages of chats", "400 days", "/my-data/export", "/my-data/delete", "/my-data/close"):
        assert shown in page
    console.auth.set_role(AccountRole.MEMBER)
    assert "/my-data/close" not in console.get("/my-data", session).text
    assert "/my-data/account.zip" not in console.get("/my-data/export", session).text
    console.auth.leave_account()
    assert "Leave the account" not in console.get("/my-data", session).text


def test_the_export_has_what_the_service_knows_of_a_user_and_no_secret(console: ConsoleHarness) -> None:
    console.backends.offer_everything()
    session = console.auth.sign_in()
    answer = console.get_bytes("/my-data/user.zip", session)
    archive = zipfile.ZipFile(io.BytesIO(answer))
    assert archive.testzip() is None
    user = json.loads(archive.read("user.json"))
    assert (user["user"]["name"], user["user"]["email"]) == (NAME, EMAIL)
    assert [each["role"] for each in user["memberships"]] == ["ACCOUNT_ROLE_OWNER"]
    assert {each["name"] for each in user["ways_to_sign_in"]["passkeys"]} == {"Work laptop", "Phone"}
    assert {each["session_id"] for each in user["sessions"]} >= {"sess_phone", "sess_1"}
    keys = rows(archive, "keys.csv")
    own = [each.key_id for each in console.auth.list_keys() if each.created_by == USER_ID]
    assert sorted(each["key_id"] for each in keys) == sorted(own)
    events = rows(archive, "audit-log.csv")
    assert events
    assert {each["user_id"] for each in events} == {USER_ID}
    content = b"".join(archive.read(name) for name in archive.namelist()).decode()
    for secret in ("digest", "argon2", "token", session):
        assert secret not in content


def test_an_export_that_cannot_be_read_is_a_page_and_no_part_of_a_file(console: ConsoleHarness) -> None:
    console.backends.fail = {"UserService.GetCredentials": not_answering()}
    answer = console.get("/my-data/user.zip", console.auth.sign_in())
    assert (answer.status, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")


@pytest.mark.parametrize("path", ["/my-data/user.zip", "/my-data/account.zip", "/my-data/export", "/my-data/delete"])
def test_export_and_deletion_ask_who_it_is(console: ConsoleHarness, path: str) -> None:
    console.backends.fill()
    console.auth.grow_stale()
    answer = console.get(path, console.auth.sign_in())
    assert (answer.status, "Confirm that it is you" in answer.text) == (403, True)


def test_a_deletion_asks_who_it_is_and_then_goes_on(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.set_role(AccountRole.OWNER, MEMBER_ID)
    console.auth.grow_stale()
    session = console.auth.sign_in()
    asked = console.post("/my-data/delete", {}, session)
    assert asked.status == 403
    assert len(console.auth.users()) == 2
    [pending] = set(re.findall(r'name="pending" value="([^"]+)"', asked.text))
    fields = {"pending": pending.replace("&#34;", '"'), "kind": "recovery", "code": RECOVERY_CODE}
    assert "Your user was deleted" in console.post("/confirm", fields, session).text
    assert [user.user_id for user in console.auth.users()] == [MEMBER_ID]


def test_a_user_sees_what_ends_and_gets_a_receipt_once(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.set_role(AccountRole.OWNER, MEMBER_ID)
    session = console.auth.sign_in()
    page = console.get("/my-data/delete", session).text
    for shown in ("You leave Analytical Engines", "Nightly report", "Old laptop"):
        assert shown in page
    # Not those that do not work any more, and no other member's.
    for hidden in ("Contractor", "Trial", "Website chat"):
        assert hidden not in page
    answer = console.post("/my-data/delete", {}, session)
    assert answer.status == 200
    assert "Your user was deleted" in answer.text
    for hidden in (NAME, EMAIL, 'href="/settings"'):
        assert hidden not in answer.text
    assert any(cookie.startswith('__Host-legato=""') for cookie in answer.cookies)
    assert answer.headers["cache-control"] == "no-store"
    assert [user.user_id for user in console.auth.users()] == [MEMBER_ID]
    states = {each.name: each.revoked_at_us is None for each in console.auth.list_keys()}
    assert states["Website chat"]
    assert not states["Nightly report"]
    # Once: sent again, it finds nobody.
    assert console.post("/my-data/delete", {}, session).headers["location"] == "/sign-in"
    assert console.get("/", session).status == 303


def test_the_last_owner_is_told_what_to_do_first(console: ConsoleHarness) -> None:
    console.backends.fill()
    answer = console.post("/my-data/delete", {}, console.auth.sign_in())
    assert answer.status == 400
    assert "You are the last owner of Analytical Engines" in answer.text
    assert len(console.auth.users()) == 2
