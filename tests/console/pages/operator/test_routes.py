"""Routes, as each router knows them."""

from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness


def test_routes_show_each_model_and_a_reload_says_what_is_wrong(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/routes", session).text
    assert "41 of 48" in text
    assert "Failing" in text
    assert text.count("weight 70") == 1
    assert "Reloaded" in console.post("/operator/routes/reload", session=session).text
    console.router.write_mistakes()
    answer = console.post("/operator/routes/reload", session=session)
    assert answer.status == 400
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
