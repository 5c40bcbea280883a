"""Routes, as each router knows them."""

from protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.console.fakes.services import not_answering
from tests.console.harness import ConsoleHarness


def test_routes_show_each_model_and_a_reload_says_what_is_wrong(console: ConsoleHarness, session: str) -> None:
    text = console.get("/operator/routes", session).text
    assert "41 of 48" in text
    assert "Failing" in text
    assert "Reloaded" in console.post("/operator/routes/reload", session=session).text
    mistake = LegatoError(Reason.REQUEST_INVALID, "routes.toml: line 7: no such provider")
    console.fakes.fail = {"RouteAdminService.ReloadRoutes": mistake}
    answer = console.post("/operator/routes/reload", session=session)
    assert answer.status == 400
    assert "line 7: no such provider" in answer.text
    assert [each.action for each in console.fakes.operator.recorded] == [pb.OPERATOR_ACTION_RELOAD_ROUTES] * 2


def test_routes_show_what_a_reload_would_change_before_it_does(console: ConsoleHarness, session: str) -> None:
    assert "a reload would change nothing" in console.get("/operator/routes", session).text
    console.fakes.operator.route_changes = ["- forte: 1. maple-large of maple", "+ forte: 1. <maple> of maple"]
    text = console.get("/operator/routes", session).text
    assert '<li class="goes">- forte: 1. maple-large of maple</li>' in text
    assert '<li class="comes">+ forte: 1. &lt;maple&gt; of maple</li>' in text
    console.fakes.operator.file_mistakes = ["routes.toml: classes.forte: is missing"]
    text = console.get("/operator/routes", session).text
    assert "The file on disk has mistakes" in text
    assert "classes.forte: is missing" in text


def test_a_router_that_does_not_answer_is_told_so(console: ConsoleHarness, session: str) -> None:
    console.fakes.fail = {"RouteAdminService.ListTargets": not_answering()}
    answer = console.get("/operator/routes", session)
    assert answer.status == 200
    assert "What this router does is not known" in answer.text
