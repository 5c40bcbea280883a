"""Credit, and the proof that it adds up."""

from protos.type.v1 import access_token_pb2
from tests.console.fakes.statements import request_id
from tests.console.harness import ConsoleHarness


def test_viewers_see_everything_and_may_verify(console: ConsoleHarness) -> None:
    console.fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER
    console.fakes.fill()
    session = console.fakes.sign_in()
    for path in ("/usage", "/requests", "/credit", "/credit/entries", f"/requests/{request_id(3)}"):
        assert console.get(path, session).status == 200
    assert "Keys that you created" not in console.get("/usage", session).text
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text


def test_figures_that_do_not_add_up_are_shown(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.violations = ["account acct_1: balance is +1 nanos off the sum of its ledger"]
    text = console.post("/credit/verify", session=console.fakes.sign_in()).text
    assert "One figure does not add up" in text
    assert "+1 nanos off" in text
    assert "Your ledger adds up" not in text


def test_a_verification_that_takes_long_is_asked_for_again(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.audits_that_run = 1
    session = console.fakes.sign_in()
    waiting = console.post("/credit/verify", session=session).text
    assert "runs since 12 s" in waiting
    assert 'action="/credit/verify" data-repeats' in waiting
    assert "Your ledger adds up" not in waiting
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text
