"""The routes file, edited on a page: nothing changes before it is taken over, and then at every router or at none."""

import html
import io
import re
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from console.app import ConsoleApp
from console.services import RouterCalls
from console.web.visit import Visit
from legato_protos.router.v1 import route_files_pb2 as pb
from services.chassis.telemetry.log import Log
from services.router.providers import open_provider
from services.router.routing.model_states import ModelStates
from services.router.routing.reload import Reload
from services.router.routing.routes import load_routes
from services.router.routing.target import DEFAULT_TIMEOUTS
from services.router.servicers.route_admin import RouteAdminServicer
from services.router.servicers.route_files import RouteFileServicer
from tests.console.backends import not_answering
from tests.console.harness import Answer, ConsoleHarness
from tests.support.fakes import FakeClock

EDIT = "/operator/routes/edit"


def editor_of(answer: Answer) -> dict[str, str]:
    """Returns the fields of the form with the text."""
    found = re.search(
        r'name="base_digest" value="([0-9a-f]{64})">\s*<div.*?<textarea[^>]*>\n(.*?)</textarea>', answer.text, re.DOTALL
    )
    assert found, answer.text
    return {"base_digest": found[1], "text": html.unescape(found[2])}


def file_of(console: ConsoleHarness) -> Path:
    return console.router.file


def test_a_changed_text_is_checked_shown_and_taken_over(console: ConsoleHarness, session: str) -> None:
    given = editor_of(console.get(EDIT, session))
    assert given["text"] == file_of(console).read_text()
    given["text"] = given["text"].replace("maple-large = 70", "maple-large = 60")
    checked = console.post(EDIT, given, session)
    assert checked.status == 200
    assert "forte: maple-large has weight 60 instead of 70." in checked.text
    assert '<li class="comes">+tiers = [{ maple-large = 60, cedar-2 = 30 }]</li>' in checked.text
    assert "maple-large = 70" in file_of(console).read_text()
    answer = console.post("/operator/routes/apply", given, session)
    assert answer.headers["location"] == "/operator/routes"
    assert "Every router has the new routes" in console.follow(answer, session).text
    assert "weight 60" in console.get("/operator/routes", session).text
    assert "maple-large = 60" in file_of(console).read_text()
    [event] = console.auth.events("routes.change_requested")
    assert event.object_id


def test_mistakes_have_their_lines_and_change_nothing(console: ConsoleHarness, session: str) -> None:
    before = file_of(console).read_text()
    given = editor_of(console.get(EDIT, session))
    given["text"] = given["text"].replace("cedar-2-max = 1", "cedar-3 = 1")
    for path in (EDIT, "/operator/routes/apply", "/operator/routes/try"):
        answer = console.post(path, {**given, "model": "cedar-2"}, session)
        assert answer.status == 400
        assert re.search(r'Line \d+: <code class="breaks">classes.fortissimo.tiers</code>', answer.text), path
        assert "no model named &#34;cedar-3&#34;" in answer.text
        assert "Take over on every router" not in answer.text
    assert file_of(console).read_text() == before


def test_the_second_of_two_operators_gets_a_conflict_and_overwrites_nothing(
    console: ConsoleHarness, session: str
) -> None:
    given = editor_of(console.get(EDIT, session))
    others = given["text"].replace("cedar-2 = 30", "cedar-2 = 35")
    file_of(console).write_text(others)
    given["text"] = given["text"].replace("maple-large = 70", "maple-large = 60")
    answers = [console.post(path, given, session) for path in (EDIT, "/operator/routes/apply")]
    for answer in answers:
        assert "Somebody else has changed the file meanwhile" in answer.text
        # Their change would be undone.
        assert '<li class="goes">-tiers = [{ maple-large = 70, cedar-2 = 35 }]</li>' in answer.text
        assert "Take over on every router" not in answer.text
    assert ([answer.status for answer in answers], file_of(console).read_text()) == ([200, 409], others)
    [current] = re.findall(r'formaction="/operator/routes/edit" name="base_digest" value="(\w+)"', answers[1].text)
    given["base_digest"] = current
    assert console.post("/operator/routes/apply", given, session).status == 303


def test_a_file_that_cannot_be_written_is_offered_to_download(
    console: ConsoleHarness, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file_of(console).read_text()
    given = editor_of(console.get(EDIT, session))
    given["text"] = given["text"].replace("maple-large = 70", "maple-large = 60")
    monkeypatch.setattr("os.access", lambda *_: False)
    answer = console.post(EDIT, given, session)
    assert "The file cannot be written from here" in answer.text
    assert "Take over on every router" not in answer.text
    assert console.post("/operator/routes/apply", given, session).status == 400
    file = console.post("/operator/routes/routes.toml", given, session)
    assert 'filename="routes.toml"' in file.headers["content-disposition"]
    assert file.text == given["text"]
    assert file_of(console).read_text() == before


def test_a_file_that_may_have_a_secret_is_not_shown(console: ConsoleHarness, session: str) -> None:
    with file_of(console).open("a") as file:
        file.write("# once sk-proj-0a1b2c3d4e5f6g7h8i\n")
    answer = console.get(EDIT, session)
    assert "The file is not shown" in answer.text
    assert "sk-proj" not in answer.text
    assert "<textarea" not in answer.text


def test_a_canary_is_begun_and_ended_as_a_change_of_the_text(console: ConsoleHarness, session: str) -> None:
    console.get("/operator/routes", session)
    canary = {"class": "forte", "model": "cedar-2-max", "percent": "5"}
    answer = console.post("/operator/routes/canary", canary, session)
    assert "forte: the canary cedar-2-max begins with 5 % of the accounts." in answer.text
    assert console.post("/operator/routes/apply", editor_of(answer), session).status == 303
    assert "canary, 5\u00a0% of accounts" in console.get("/operator/routes", session).text
    ended = console.post("/operator/routes/canary", {"class": "forte", "ends": "yes"}, session)
    assert "forte: the canary cedar-2-max ends; it had 5 % of the accounts." in ended.text
    for wrong in ({"percent": "0"}, {"percent": "101"}, {"percent": "five"}, {"percent": ""}):
        answer = console.post("/operator/routes/canary", canary | wrong, session)
        assert (answer.status, "A percentage above 0" in answer.text) == (400, True)
    unknown = console.post("/operator/routes/canary", canary | {"model": "cedar-3"}, session)
    assert "no model named &#34;cedar-3&#34;" in unknown.text


def test_a_canary_that_was_rolled_back_is_resumed(console: ConsoleHarness, session: str) -> None:
    console.router.evaluate()
    assert "Rolled back" in console.get("/operator/routes", session).text
    answer = console.post("/operator/routes/resume", {"class": "forte"}, session)
    assert "Accounts are sent to the canary again" in console.follow(answer, session).text
    assert "Rolled back" not in console.get("/operator/routes", session).text
    assert len(console.auth.events("canary.resume_requested")) == 1


def test_a_trial_says_how_the_model_answered_and_not_what(console: ConsoleHarness, session: str) -> None:
    given = {**editor_of(console.get(EDIT, session)), "model": "cedar-2"}
    # Nothing listens at the address of the providers.
    answer = console.post("/operator/routes/try", given, session)
    assert "cedar-2 gave no answer" in answer.text
    told = pb.TryModelResponse(duration_s=0.42, first_token_s=0.31, prompt_tokens=14, completion_tokens=12)
    with mock.patch(
        "services.router.servicers.route_files.RouteFileServicer.TryModel", mock.AsyncMock(return_value=told)
    ):
        console.backends.renew()
        answer = console.post("/operator/routes/try", given, session)
    console.backends.renew()
    assert "cedar-2 answered in 0.4 s" in answer.text
    assert "14 of the prompt, 12 of the answer" in answer.text
    assert len(console.auth.events("model.trial_requested")) == 2


def test_changes_need_a_recent_proof(console: ConsoleHarness, session: str) -> None:
    given = {**editor_of(console.get(EDIT, session)), "model": "cedar-2", "class": "forte"}
    console.auth.grow_stale()
    for action in ("try", "apply", "resume"):
        answer = console.post(f"/operator/routes/{action}", given, session)
        assert (answer.status, "Confirm" in answer.text) == (403, True), action
    assert "RouteFileService.TryModel" not in console.backends.calls


@pytest.mark.parametrize("fails", ["write", "conflict"])
def test_what_one_router_refuses_is_undone_at_the_others(
    console: ConsoleHarness, session: str, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    console.get(EDIT, session)
    before = file_of(console).read_text()
    given = editor_of(console.get(EDIT, session))
    given["text"] = given["text"].replace("maple-large = 70", "maple-large = 60")
    mine = Visit.routers.fget  # type: ignore[attr-defined]

    class Refusing:
        """A second router, which has the same file and then refuses another."""

        def __init__(self, router: RouterCalls) -> None:
            self.router_calls = router
            self.route_admin = router.route_admin
            self.route_files = self

        async def GetRouteFile(self, request: pb.GetRouteFileRequest) -> pb.GetRouteFileResponse:
            return await self.router_calls.route_files.GetRouteFile(request)

        async def PreviewRouteFile(self, request: pb.PreviewRouteFileRequest) -> pb.PreviewRouteFileResponse:
            return await self.router_calls.route_files.PreviewRouteFile(request)

        async def WriteRouteFile(self, request: pb.WriteRouteFileRequest) -> pb.WriteRouteFileResponse:
            if fails == "write":
                raise not_answering()
            return pb.WriteRouteFileResponse(outcome=pb.WRITE_OUTCOME_CONFLICT)

    def two(visit: Visit) -> dict[str, object]:
        [(address, router)] = mine(visit).items()
        return {address: router, "router-2:7001": Refusing(router)}

    monkeypatch.setattr(Visit, "routers", property(two))
    answer = console.post("/operator/routes/apply", given, session)
    assert answer.status == 409
    assert "router-2:7001" in answer.text
    assert file_of(console).read_text() == before
    assert "RouteAdminService.ReloadRoutes" not in console.backends.calls


class SecondRouter:
    """Another router, whose servicers have a file of their own."""

    def __init__(self, first: Path, path: Path) -> None:
        path.write_text(first.read_text())
        self.path = path
        self.states: ModelStates | None = None
        self.route_files = self.route_admin = self

    async def _call(self, method: str, request: object) -> object:
        log = Log("router", io.StringIO())
        if self.states is None:
            open_one = partial(open_provider, local_model_socket=self.path)
            self.states = ModelStates(load_routes(self.path), open_one, FakeClock(), log)
            reload = Reload(self.path, DEFAULT_TIMEOUTS, self.states, log)
            self.servicers = (
                RouteFileServicer(self.states, reload, open_one, FakeClock()),
                RouteAdminServicer(self.states, reload),
            )
        [behaviour] = [getattr(each, method) for each in self.servicers if method in vars(type(each))]
        return await behaviour(request, None)

    def __getattr__(self, method: str) -> object:
        return partial(self._call, method)


def test_two_routers_with_files_of_their_own_take_over_together(
    console: ConsoleHarness, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.get(EDIT, session)
    mine = Visit.routers.fget  # type: ignore[attr-defined]
    second = SecondRouter(file_of(console), tmp_path / "routes.toml")
    monkeypatch.setattr(Visit, "routers", property(lambda visit: {**mine(visit), "router-2:7001": second}))
    before = second.path.read_text()
    given = editor_of(console.get(EDIT, session))
    given["text"] = given["text"].replace("maple-large = 70", "maple-large = 60")
    # Another hand has changed one of the two files.
    second.path.write_text(f"{before}# Changed.\n")
    answer = console.post("/operator/routes/apply", given, session)
    assert answer.status == 400
    assert "The routers have different files" in answer.text
    assert "maple-large = 70" in file_of(console).read_text()
    second.path.write_text(before)
    assert console.post("/operator/routes/apply", given, session).status == 303
    assert second.path.read_text() == file_of(console).read_text() == given["text"]
    assert second.states is not None
    assert second.states.routes.version == load_routes(file_of(console)).version
    assert console.get("/operator/routes", session).text.count(second.states.routes.version) == 2


def test_routers_with_different_files_and_none_cannot_be_edited(
    console: ConsoleHarness, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.backends.fail = {"RouteFileService.GetRouteFile": not_answering()}
    answer = console.get(EDIT, session)
    assert "<textarea" not in answer.text
    assert "router" in answer.text
    console.backends.fail = {}
    monkeypatch.setattr(Visit, "routers", {})
    assert "The console finds no router." in console.get(EDIT, session).text


def test_the_router_itself_refuses_all_but_operators(console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    session = console.auth.sign_in()
    before = file_of(console).read_text()
    # A console that forgets to ask.
    monkeypatch.setattr(ConsoleApp, "_require_role", lambda *_: None)
    monkeypatch.setattr(Visit, "record_operator_action", mock.AsyncMock())
    answer = console.get(EDIT, session)
    assert "Your role" in answer.text
    assert "<textarea" not in answer.text
    given = {"text": before, "base_digest": "0", "model": "cedar-2"}
    for action in ("edit", "try", "apply"):
        answer = console.post(f"/operator/routes/{action}", given, session)
        assert "Your role" in answer.text, action
    assert {call for call in console.backends.calls if "RouteFileService" in call} == set()


def test_these_pages_do_not_exist_for_owners(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert console.get(EDIT, session).status == 404
    for action in ("edit", "canary", "resume", "try", "apply", "routes.toml"):
        assert console.post(f"/operator/routes/{action}", {}, session).status == 404, action
