"""The settings of an account, for owners and for others."""

from protos.type.v1 import access_token_pb2
from tests.console.fakes.services import not_answering
from tests.console.harness import ConsoleHarness


def test_while_the_router_does_not_answer_settings_say_so(console: ConsoleHarness) -> None:
    console.fakes.fail = {"RouterService.ListModels": not_answering()}
    assert "The router is not answering" in console.get("/settings", console.fakes.sign_in()).text


def test_a_viewer_sees_settings_without_forms(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER
    answer = console.get("/settings", console.fakes.sign_in())
    assert "/settings/class" not in answer.text
    assert "/settings/members/invite" not in answer.text
