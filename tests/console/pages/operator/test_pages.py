"""The operators' pages: who sees them, what they show, and what each form does."""

import dataclasses
import re

import pytest

from console.app import ConsoleApp
from console.routes import PAGES, PageRoute
from console.web.metrics import PageMetrics
from services.chassis.telemetry.metrics import new_registry
from tests.console.auth_rows import MEMBER_ID, OTHER_ACCOUNT_ID, OTHER_KEY_ID, RECOVERY_CODE
from tests.console.harness import ConsoleHarness

FOR_OPERATORS = [page for page in PAGES if page.needs_operator]


def path_of(page: PageRoute) -> str:
    values = {"account_id": OTHER_ACCOUNT_ID, "key_id": OTHER_KEY_ID, "user_id": MEMBER_ID}
    return page.path.format(**values)


def test_every_page_below_operator_is_for_operators_alone() -> None:
    assert {page.path for page in PAGES if page.path.startswith("/operator")} == {page.path for page in FOR_OPERATORS}


def test_other_users_find_no_such_page(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for page in FOR_OPERATORS:
        path = path_of(page)
        answer = console.get(path, session) if page.method == "GET" else console.post(path, session=session)
        assert answer.status == 404, path
        assert console.backends.calls == ["SignInService.ResolveSession"], path
        console.backends.calls.clear()


@pytest.mark.parametrize("page", FOR_OPERATORS, ids=lambda page: f"{page.method} {page.path}")
def test_a_proof_of_who_it_is_opens_no_operators_page_to_other_users(console: ConsoleHarness, page: PageRoute) -> None:
    console.auth.add_recovery_codes()
    pending = f'{{"method": "{page.method}", "path": "{path_of(page)}", "fields": []}}'
    fields = {"pending": pending, "kind": "recovery", "code": RECOVERY_CODE}
    answer = console.post("/confirm", fields, console.auth.sign_in())
    assert answer.status == 404
    assert not [call for call in console.backends.calls if "Admin" in call]


def test_the_public_console_has_no_such_pages_even_for_operators(console: ConsoleHarness) -> None:
    owners = dataclasses.replace(console.console, serves_operators=False)
    public = ConsoleApp(owners, PageMetrics(new_registry()), console.capacity)
    paths = {route.path for route in public._starlette.routes}  # type: ignore[attr-defined]
    assert "/keys" in paths
    assert not [path for path in paths if path.startswith("/operator")]


def test_only_operators_see_links_to_them(console: ConsoleHarness, session: str) -> None:
    assert 'href="/operator"' in console.get("/keys", session).text
    assert 'href="/operator/users"' in console.get("/operator", session).text
    console.auth.be_operator(is_operator=False)
    assert "/operator" not in console.get("/keys", session).text


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in FOR_OPERATORS
        if page.method == "GET" and not (page.is_json or page.shows_once or page.path.endswith(".csv"))
    ],
    ids=lambda page: page.path,
)
def test_a_page_is_shown_with_at_most_four_calls_and_its_command(
    console: ConsoleHarness, session: str, page: PageRoute
) -> None:
    answer = console.get(path_of(page), session)
    assert answer.status == 200
    assert len(re.findall("<h1", answer.text)) == 1
    # Beside the one that finds out who is signed in.
    assert len(console.backends.calls) <= 1 + 4
    assert "legato " in answer.text
