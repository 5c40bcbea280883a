"""Every result that is shown once: by the page after the form, to this browser, and by no reload."""

import re
from collections.abc import Mapping
from typing import Final

import pytest

from console.routes import PAGES, find_page
from tests.console.auth import CODE_PATTERN, KEY_PATTERN, WEBHOOK_SECRET_PATTERN
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness

NEW_KEY: Final = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
# By the form: its fields, what it makes, and where a reload leads.
RESULTS: Final[dict[str, tuple[Mapping[str, str], "re.Pattern[str]", str]]] = {
    "/keys": (NEW_KEY, KEY_PATTERN, r"/keys/key_\w{16}"),
    "/keys/key_0000000000000001/rotate": ({"expires": "90", "form_id": "f3"}, KEY_PATTERN, r"/keys/key_\w{16}"),
    "/first-key": ({"form_id": "f2"}, KEY_PATTERN, "/"),
    "/security/recovery-codes": ({}, CODE_PATTERN, "/security"),
    "/settings/members/invite": ({"role": "member"}, CODE_PATTERN, "/settings"),
    "/settings/notices/webhooks": ({"url": "https://hooks.example.ca/a"}, WEBHOOK_SECRET_PATTERN, "/settings/notices"),
    "/operator/users": ({"name": "Mary"}, CODE_PATTERN, r"/operator/users/user_\w{16}"),
    "/operator/users/user_2/sign-in-link": ({}, CODE_PATTERN, "/operator/users/user_2"),
}


@pytest.fixture
def session(console: ConsoleHarness) -> str:
    console.backends.fill()
    console.backends.fill_operator()
    console.auth.be_operator()
    return console.auth.sign_in()


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_is_shown_once_and_a_reload_makes_nothing(console: ConsoleHarness, session: str, form: str) -> None:
    fields, pattern, elsewhere = RESULTS[form]
    made = console.post(form, fields, session)
    [sealed] = console.auth.kept_results()
    shown = console.follow(made, session)
    assert shown.status == 200
    secrets = set(pattern.findall(shown.text))
    assert secrets
    assert not any(secret in f"{made.text}{made.headers}{made.cookies}" for secret in secrets)
    # Auth cannot read it.
    assert not any(secret.encode() in sealed for secret in secrets)
    assert any('-shown=""' in cookie and "Max-Age=0" in cookie for cookie in shown.cookies)
    before = what_was_made(console)
    for again in (console.follow(made, session), console.get(made.headers["location"], session)):
        assert again.status == 303
        assert re.fullmatch(elsewhere, again.headers["location"])
        assert not any(secret in again.text for secret in secrets)
        assert "shown once" in console.follow(again, session).text
    assert what_was_made(console) == before
    assert not any(secret in console.log_stream.getvalue() for secret in secrets)


def what_was_made(console: ConsoleHarness) -> list[str]:
    """Returns all that the audit log has of forms that make something, and what waits to be shown."""
    made = ("key.created", "key.rotated", "recovery_codes.generated", "member.invited", "webhook.added", "user.created")
    return [str(event) for event in console.auth.events(*made, "sign_in_link.created")] + list(
        map(str, console.auth.kept_results())
    )


def test_every_page_that_shows_once_is_tested(console: ConsoleHarness, session: str) -> None:
    reached = set()
    for form, (fields, _pattern, _elsewhere) in RESULTS.items():
        location = console.post(form, fields, session).headers["location"]
        reached.add(find_page("GET", location)[0].path)
    assert reached == {page.path for page in PAGES if page.shows_once}


def test_the_cookie_of_a_result_is_the_browsers_alone(console: ConsoleHarness, session: str) -> None:
    [cookie] = console.post("/security/recovery-codes", session=session).cookies
    assert re.match(r"__Host-legato-shown=result_\w{16}\.", cookie)
    for part in ("HttpOnly", "Path=/", "SameSite=lax", "Secure", "Max-Age=300"):
        assert part in cookie


def test_a_result_is_shown_by_its_own_page_alone(console: ConsoleHarness, session: str) -> None:
    made = console.post("/security/recovery-codes", session=session)
    cookie = made.cookies[0].partition(";")[0]
    headers = {"Cookie": f"__Host-legato={session}; {cookie}"}
    assert console.get("/settings/members/invited", headers=headers).headers["location"] == "/settings"
    for forged in ("x", "result_0", "result_0.AAAA", "result_0.\u20ac".encode().decode("latin-1"), f"result_9{cookie}"):
        headers = {"Cookie": f"__Host-legato={session}; __Host-legato-shown={forged}"}
        assert console.get("/security/recovery-codes", headers=headers).status == 303


def test_a_result_is_not_lost_where_auth_cannot_keep_it(console: ConsoleHarness, session: str) -> None:
    console.backends.fail = {"UserService.KeepResult": not_answering()}
    answer = console.post("/security/recovery-codes", session=session)
    assert (answer.status, len(set(CODE_PATTERN.findall(answer.text)))) == (200, 10)
