"""Routes, as each router knows them."""

import re
from unittest.mock import AsyncMock

import pytest

from console.pages.operator import routes
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness


def test_routes_show_each_model_and_a_reload_says_what_is_wrong(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/routes", session).text
    assert "41 of 48" in text
    assert "Failing" in text
    # Beside the tier, and under the model where there is no room for it.
    assert text.count("weight 70") == 2
    assert "Reloaded" in console.post("/operator/routes/reload", session=session).text
    console.router.write_mistakes()
    answer = console.post("/operator/routes/reload", session=session)
    assert answer.status == 400
    assert "Nothing was reloaded" in answer.text
    assert "classes.mezzo" in answer.text
    assert len(console.auth.events("routes.reload_requested")) == 2


def test_routes_show_what_a_reload_would_change_before_it_does(console: ConsoleHarness, session: str) -> None:
    assert "a reload would change nothing" in console.get("/operator/routes", session).text
    console.router.write(limits={"maple-small": 64, "maple-large": 50})
    text = console.get("/operator/routes", session).text
    terms = "forte: 1. maple-large of maple, weight 70, context_tokens 128000, max_output_tokens 16384, concurrency"
    assert f'<li class="goes">- {terms} 48</li>' in text
    assert f'<li class="comes">+ {terms} 50</li>' in text
    console.router.write_mistakes()
    text = console.get("/operator/routes", session).text
    assert "The file on disk has mistakes" in text
    assert "classes.forte" in text


def test_a_router_that_does_not_answer_is_told_so(console: ConsoleHarness, session: str) -> None:
    console.backends.fail = {"RouteAdminService.ListTargets": not_answering()}
    answer = console.get("/operator/routes", session)
    assert answer.status == 200
    assert "What this router does is not known" in answer.text


def test_new_models_are_shown_with_their_outcomes_beside_those_that_serve(
    console: ConsoleHarness, session: str
) -> None:
    console.router.evaluate()
    text = console.get("/operator/routes", session).text
    for words in (
        "canary, 5\u00a0% of accounts",
        "Rolled back",
        "New models of forte",
        "Canary: cedar/cedar-2-max fails more often: 25.0 % of 120 against 0.5 % of 2,900.",
    ):
        assert words in text, words
    assert "New models of mezzo" not in text
    # Its own, and not those of its other class.
    row = text[text.index("canary, 5") :].partition("</tr>")[0]
    assert re.findall(r'<td class="number wide-only">(\d+)</td>', row)[-2:] == ["120", "30"]


def test_commands_that_change_the_routes_are_shown_and_no_form_does(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/routes", session).text
    for command in ("routes check routes.toml", "routes diff routes.toml", "routes reload"):
        assert f"legato {command}" in text
    assert "canary = { model = &#34;MODEL&#34;, percent = 5 }" in text
    assert "legato routes resume" not in text
    for path in ("edit", "canary", "resume", "try", "apply", "routes.toml"):
        assert console.post(f"/operator/routes/{path}", {"class": "forte"}, session).status == 404, path


def test_command_that_resumes_a_canary_is_shown_where_it_was_rolled_back(console: ConsoleHarness, session: str) -> None:
    console.router.evaluate()
    assert "legato routes resume forte" in console.get("/operator/routes", session).text


def test_version_of_the_routes_is_shown_and_changes_with_them(console: ConsoleHarness, session: str) -> None:
    def version(text: str) -> str:
        [found] = re.findall(r'Version <span class="mono">([0-9a-f]{12})</span>', text)
        return str(found)

    before = version(console.get("/operator/routes", session).text)
    console.router.write(limits={"maple-small": 63})
    assert version(console.get("/operator/routes", session).text) == before
    assert version(console.post("/operator/routes/reload", session=session).text) != before
    [event] = console.auth.events("routes.reload_requested")
    assert [(change.field, change.before) for change in event.changes or ()] == [("routes_version", before)]


def test_routers_with_different_routes_are_told_apart(
    console: ConsoleHarness, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for versions, differ in ((("0123456789ab", "ba9876543210"), True), (("0123456789ab", "0123456789ab"), False)):
        found = [routes.RouterRoutes(f"router-{number}", [], version=each) for number, each in enumerate(versions)]
        monkeypatch.setattr(routes, "_ask_each", AsyncMock(return_value=found))
        text = console.get("/operator/routes", session).text
        assert ("The routers use different routes" in text) == differ
        assert all(text.count(each) == versions.count(each) for each in versions)
