"""The page of models: what processes and routers tell, live, and how routes are changed."""

import json
import re
from unittest.mock import AsyncMock

import pytest

from console.pages.operator import models
from console.pages.operator.model_table import RouterRoutes
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness


def test_figures_are_added_over_the_processes_and_models_are_asked_of_routers(
    console: ConsoleHarness, session: str
) -> None:
    figures = json.loads(console.get("/operator/models.json", session).text)["figures"]
    assert figures["running"] == ["86", ""]
    assert figures["chats"] == ["16,400", ""]
    assert figures["first token"] == ["250 ms", ""]
    assert figures["refusals RATE_LIMITED"] == ["182", ""]
    assert figures["ledger"] == ["Consistent", "good"]
    assert {text for name, (text, _) in figures.items() if name.endswith("uptime")} == {"3 days"}
    assert figures["model forte 1 maple maple-large 1 running"] == ["41 of 48", ""]
    assert figures["model forte 1 maple maple-large 1 recent"] == ["19 of 4,716 (0.4\u00a0%)", ""]
    states = {name.split()[-3]: state for name, state in figures.items() if re.match(r"model .* state$", name)}
    assert states == {
        "maple-small": ["Healthy", "good"],
        "maple-large": ["Healthy", "good"],
        "cedar-2": ["Failing", "bad"],
        "cedar-2-max": ["Fails often", "warn"],
    }
    # A reload is asked about only where it is shown.
    assert console.backends.calls_of_page == ["RouteAdminService.ListTargets", "RouteAdminService.ListOutcomes"]


def test_the_page_and_the_figures_are_of_one_shape_until_something_comes_or_goes(
    console: ConsoleHarness, session: str
) -> None:
    def shape() -> str:
        return str(json.loads(console.get("/operator/models.json", session).text)["shape"])

    before = shape()
    assert f'data-shape="{before}"' in console.get("/operator", session).text
    console.backends.processes.missing = {"edge-1": ["auth"]}
    assert shape() != before
    console.backends.processes.missing = {}
    assert shape() == before
    console.router.write(limits={"maple-small": 63})
    assert console.post("/operator", session=session).status == 200
    assert shape() != before


def test_refusals_are_told_in_words_with_the_code_on_demand(console: ConsoleHarness, session: str) -> None:
    page = console.get("/operator", session).text
    assert "<summary>There is no capacity for another chat</summary>" in page
    assert '<p class="small mono muted">SATURATED</p></details>' in page


def test_models_in_trouble_need_a_look(console: ConsoleHarness, session: str) -> None:
    console.router.evaluate()
    text = console.get("/operator", session).text
    found = text[text.index("Needs a look") :].partition("</section>")[0]
    for words, runbook in (
        ("cedar-2 of cedar fails, and is asked last.", "provider-down.md"),
        ("cedar-2-max of cedar fails often.", "provider-down.md"),
        ("The canary of forte was rolled back.", "canary-rolled-back.md"),
    ):
        assert re.search(f"{words}.*{runbook}", found), words


def test_address_of_the_former_page_of_routes_is_gone(console: ConsoleHarness, session: str) -> None:
    assert console.get("/operator/routes", session).status == 404


def test_routes_show_each_model_and_a_reload_says_what_is_wrong(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator", session).text
    assert "41 of 48" in text
    assert "Failing" in text
    # Beside the tier, and under the model where there is no room for it.
    assert text.count("weight 70") == 2
    assert text.count("19 of 4,716 (0.4\u00a0%)") == 2
    assert "Reloaded" in console.post("/operator", session=session).text
    console.router.write_mistakes()
    answer = console.post("/operator", session=session)
    assert answer.status == 400
    assert "Nothing was reloaded" in answer.text
    assert "classes.mezzo" in answer.text
    assert len(console.auth.events("routes.reload_requested")) == 2


def test_routes_show_what_a_reload_would_change_before_it_does(console: ConsoleHarness, session: str) -> None:
    assert "a reload would change nothing" in console.get("/operator", session).text
    console.router.write(limits={"maple-small": 64, "maple-large": 50})
    text = console.get("/operator", session).text
    terms = "forte: 1. maple-large of maple, weight 70, context_tokens 128000, max_output_tokens 16384, concurrency"
    assert f'<li class="goes">- {terms} 48</li>' in text
    assert f'<li class="comes">+ {terms} 50</li>' in text
    console.router.write_mistakes()
    text = console.get("/operator", session).text
    assert "The file on disk has mistakes" in text
    assert "classes.forte" in text


def test_a_router_that_does_not_answer_is_told_so(console: ConsoleHarness, session: str) -> None:
    console.backends.fail = {"RouteAdminService.ListTargets": not_answering()}
    answer = console.get("/operator", session)
    assert answer.status == 200
    assert "What this router does is not known" in answer.text


def test_commands_that_change_the_routes_are_shown_and_no_form_does(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator", session).text
    for command in ("routes check routes.toml", "routes diff routes.toml", "routes reload"):
        assert f"legato {command}" in text
    assert "canary = { model = &#34;MODEL&#34;, percent = 5 }" in text
    assert "legato routes resume" not in text
    for path in ("edit", "canary", "resume", "try", "apply", "routes.toml"):
        assert console.post(f"/operator/routes/{path}", {"class": "forte"}, session).status == 404, path


def test_version_of_the_routes_is_shown_and_changes_with_them(console: ConsoleHarness, session: str) -> None:
    def version(text: str) -> str:
        [found] = re.findall(r'Version <span class="mono">([0-9a-f]{12})</span>', text)
        return str(found)

    before = version(console.get("/operator", session).text)
    console.router.write(limits={"maple-small": 63})
    assert version(console.get("/operator", session).text) == before
    assert version(console.post("/operator", session=session).text) != before
    [event] = console.auth.events("routes.reload_requested")
    assert [(change.field, change.before) for change in event.changes or ()] == [("routes_version", before)]


def test_routers_with_different_routes_are_told_apart(
    console: ConsoleHarness, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for versions, differ in ((("0123456789ab", "ba9876543210"), True), (("0123456789ab", "0123456789ab"), False)):
        found = [RouterRoutes(f"router-{number}", version=each) for number, each in enumerate(versions)]
        monkeypatch.setattr(models, "_ask_each", AsyncMock(return_value=found))
        text = console.get("/operator", session).text
        assert ("The routers use different routes" in text) == differ
        assert all(text.count(each) == versions.count(each) for each in versions)
