"""What happens before and after every page."""

import re

import pytest

from console.routes import PAGES
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import request_id

SHOWN = ["/", "/keys", "/keys/new", "/keys/identify", "/security", "/security/passkeys/new", "/security/audit-log"]


SHOWN += ["/settings", "/settings/audit-log", "/keys/key_0000000000000001", "/playground", "/models"]


SHOWN += ["/usage", "/usage?by=member&keys=mine", "/requests", "/credit", "/credit/entries"]


SHOWN += [f"/requests/{request_id(3)}"]


SHOWN += ["/memory", "/memory/note_0000000000000001", "/documents", "/preview"]


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_is_shown_with_at_most_four_calls(console: ConsoleHarness, path: str) -> None:
    console.backends.fill()
    console.grounding.fill()
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 200
    assert len(re.findall("<h1", answer.text)) == 1
    assert len(console.backends.calls_of_page) <= 4


def test_a_page_that_needs_sign_in_leads_to_it(console: ConsoleHarness) -> None:
    pages = [page for page in PAGES if page.needs_sign_in]
    assert pages
    for page in pages:
        path = re.sub(r"\{\w+\}", "key_0000000000000001", page.path)
        answer = console.get(path) if page.method == "GET" else console.post(path)
        assert answer.status == (401 if page.is_json else 303), path
        assert console.backends.calls == [], path


def test_while_metering_does_not_answer_the_other_pages_work(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.backends.fail = {
        name: not_answering() for name in ("MeteringService.ListUsage", "MeteringService.GetBalance")
    }
    session = console.auth.sign_in()
    assert "Credit and usage cannot be shown right now" in console.get("/", session).text
    keys = console.get("/keys", session)
    assert keys.status == 200
    assert "Costs cannot be shown right now" in keys.text
    assert console.post("/keys/key_0000000000000001/revoke", session=session).status == 303


def test_while_auth_does_not_answer_the_page_says_so(console: ConsoleHarness) -> None:
    console.backends.fail = {"SignInService.ResolveSession": not_answering()}
    answer = console.get("/keys", console.auth.sign_in())
    assert answer.status == 503
    assert "not answering" in answer.text
