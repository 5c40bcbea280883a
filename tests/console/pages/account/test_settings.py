"""The settings of an account, for owners and for others."""

from services.chassis.access_tokens import AccountRole
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness


def test_while_the_router_does_not_answer_settings_say_so(console: ConsoleHarness) -> None:
    console.backends.fail = {"RouterService.ListModels": not_answering()}
    assert (
        "The classes cannot be shown right now. Auto is forte." in console.get("/settings", console.auth.sign_in()).text
    )


def test_a_viewer_sees_settings_without_forms(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    answer = console.get("/settings", console.auth.sign_in())
    assert "/settings/class" not in answer.text
    assert "/settings/members/invite" not in answer.text
