"""Credit, and the proof that it adds up."""

import threading
from typing import Any

import pytest

from services.chassis.access_tokens import AccountRole
from services.chassis.money import format_usd
from services.metering.audit.auditor import find_violations_of
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID, HELD_NANOS, request_id


def test_viewers_see_everything_and_may_verify(console: ConsoleHarness) -> None:
    console.auth.set_role(AccountRole.VIEWER)
    console.backends.fill()
    session = console.auth.sign_in()
    for path in ("/usage", "/requests", "/credit", "/credit/entries", f"/requests/{request_id(3)}"):
        assert console.get(path, session).status == 200
    assert "Keys that you created" not in console.get("/usage", session).text
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text


def test_figures_that_do_not_add_up_are_shown(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.falsify_balance(1)
    text = console.post("/credit/verify", session=console.auth.sign_in()).text
    assert "One figure does not add up" in text
    assert "+1 nanos off" in text
    assert "Your ledger adds up" not in text


def test_a_verification_that_takes_long_is_asked_for_again(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.backends.fill()
    session, may_end = console.auth.sign_in(), threading.Event()

    def wait_and_look(connection: Any, account_id: str) -> list[str]:
        assert may_end.wait(60)
        return find_violations_of(connection, account_id)

    monkeypatch.setattr("services.metering.audit.account_audits.find_violations_of", wait_and_look)
    with monkeypatch.context() as hasty:
        hasty.setattr("console.pages.account.credit.AUDIT_WAIT_MS", 1)
        waiting = console.post("/credit/verify", session=session).text
    may_end.set()
    assert "runs since" in waiting
    assert 'action="/credit/verify" data-repeats' in waiting
    assert "Your ledger adds up" not in waiting
    assert "Your ledger adds up" in console.post("/credit/verify", session=session).text


def test_without_metering_the_page_says_what_cannot_be_shown(console: ConsoleHarness) -> None:
    console.backends.fill()
    names = ("MeteringService.GetBalance", "StatementService.ListLedgerDays")
    console.backends.fail = {name: not_answering() for name in names}
    answer = console.get("/credit", console.auth.sign_in())
    assert answer.status == 200
    assert "The statement cannot be shown right now" in answer.text


def test_the_overview_the_credit_and_the_operators_page_have_the_same_figures(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.auth.be_operator()
    session, balance_nanos = console.auth.sign_in(), console.metering.balance_nanos()
    balance, free = (f'<data value="{format_usd(nanos)}">' for nanos in (balance_nanos, balance_nanos - HELD_NANOS))
    overview, credit, operators = (
        console.get(path, session).text for path in ("/", "/credit", f"/operator/accounts/{ACCOUNT_ID}")
    )
    assert all(balance in text for text in (overview, credit, operators))
    assert all(f'<dt>Free credit</dt>\n    <dd><span class="figure">{free}' in text for text in (overview, credit))


def test_the_exact_balance_is_told_only_where_it_differs_from_what_is_shown(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert "Exactly" not in console.get("/credit", session).text
    console.metering.book(1)
    assert "Exactly $5.000000001" in console.get("/credit", session).text
