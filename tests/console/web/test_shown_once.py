"""Every result that is shown once: by the page after the form, to this browser, and by no reload."""

from collections.abc import Mapping
from typing import Final

import pytest

from console.routes import PAGES, find_page
from tests.console.fakes.keys import SECRET
from tests.console.fakes.notices import WEBHOOK_SECRET
from tests.console.fakes.operator_services import LINK_CODE
from tests.console.fakes.services import INVITATION, not_answering
from tests.console.harness import ConsoleHarness

NEW_KEY: Final = {"name": "Report", "scope": "inference", "allowed": "mezzo", "expires": "never", "form_id": "f1"}
# By the form: its fields, what it makes, and where a reload leads.
RESULTS: Final[dict[str, tuple[Mapping[str, str], str, str]]] = {
    "/keys": (NEW_KEY, SECRET, "/keys/key_0000000000000006"),
    "/keys/key_0000000000000001/rotate": ({"expires": "90", "form_id": "f3"}, SECRET, "/keys/key_0000000000000006"),
    "/first-key": ({"form_id": "f2"}, SECRET, "/"),
    "/security/recovery-codes": ({}, "RCVY-0003-ABCD-EFGH", "/security"),
    "/settings/members/invite": ({"role": "member"}, INVITATION, "/settings"),
    "/settings/notices/webhooks": ({"url": "https://hooks.example.ca/a"}, WEBHOOK_SECRET, "/settings/notices"),
    "/operator/users": ({"name": "Mary"}, LINK_CODE, "/operator/users/user_4"),
    "/operator/users/user_2/sign-in-link": ({}, LINK_CODE, "/operator/users/user_2"),
}


@pytest.fixture
def session(console: ConsoleHarness) -> str:
    console.fakes.fill()
    console.fakes.operator.fill()
    console.fakes.is_operator = True
    return console.fakes.sign_in()


@pytest.mark.parametrize("form", RESULTS)
def test_a_result_is_shown_once_and_a_reload_makes_nothing(console: ConsoleHarness, session: str, form: str) -> None:
    fields, secret, elsewhere = RESULTS[form]
    made = console.post(form, fields, session)
    assert secret not in f"{made.text}{made.headers}{made.cookies}"
    # Auth cannot read it.
    assert all(secret.encode() not in (sealed or b"") for sealed in console.fakes.results.values())
    shown = console.follow(made, session)
    assert (shown.status, secret in shown.text) == (200, True)
    assert any('-shown=""' in cookie and "Max-Age=0" in cookie for cookie in shown.cookies)
    calls = [call for call in console.fakes.calls if call.partition(".")[2].startswith(MAKING)]
    for again in (console.follow(made, session), console.get(made.headers["location"], session)):
        assert (again.status, again.headers["location"], secret in again.text) == (303, elsewhere, False)
        assert "shown once" in console.follow(again, session).text
    assert calls == [call for call in console.fakes.calls if call.partition(".")[2].startswith(MAKING)]
    assert secret not in console.log_stream.getvalue()


MAKING: Final = ("Create", "Rotate", "Generate", "Invite", "Add", "Keep")


def test_every_page_that_shows_once_is_tested(console: ConsoleHarness, session: str) -> None:
    reached = set()
    for form, (fields, _secret, _elsewhere) in RESULTS.items():
        location = console.post(form, fields, session).headers["location"]
        reached.add(find_page("GET", location)[0].path)
    assert reached == {page.path for page in PAGES if page.shows_once}


def test_the_cookie_of_a_result_is_the_browsers_alone(console: ConsoleHarness, session: str) -> None:
    [cookie] = console.post("/security/recovery-codes", session=session).cookies
    for part in ("__Host-legato-shown=result_0.", "HttpOnly", "Path=/", "SameSite=lax", "Secure", "Max-Age=300"):
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
    console.fakes.fail = {"UserService.KeepResult": not_answering()}
    answer = console.post("/security/recovery-codes", session=session)
    assert (answer.status, "RCVY-0003-ABCD-EFGH" in answer.text) == (200, True)
