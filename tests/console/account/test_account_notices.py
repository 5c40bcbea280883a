"""What every page of an account says of requests that are refused."""

import asyncio
from typing import Any

import pytest

from console.routes import PAGES
from services.chassis.access_tokens import AccountRole
from services.metering.credit.ledger.spend import SpendLimits
from services.metering.servicers.metering import MeteringServicer
from tests.console.auth_rows import MEMBER_ID
from tests.console.backends import not_answering
from tests.console.browser.pages import STATES
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR

OUT = "This account is out of credit"
REACHED = "A spend limit of this account is reached"
BALANCE = "MeteringService.GetBalance"
CHANGE = 'href="/credit/limits">Change the spend limits</a>'


def test_every_page_of_an_account_says_why_requests_are_refused(console: ConsoleHarness) -> None:
    """All addresses of the list of pages, which has those of all pages."""
    assert sum(page.is_of_account for page in PAGES) > 20
    console.backends.fill()
    console.grounding.fill()
    console.backends.payments.begin_checkout()
    console.metering.leave(0)
    console.metering.set_limits(SpendLimits(total_nanos=DOLLAR))
    session = console.auth.sign_in()
    for path in {path: None for path, _prepare in STATES.values()}:
        console.backends.calls.clear()
        answer = console.get(path, session)
        assert answer.status == 303 or (OUT in answer.text and REACHED in answer.text), path
        assert console.backends.calls.count(BALANCE) <= 1, path


def test_a_reached_limit_is_told_with_its_figures_and_when_it_ends(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    assert REACHED not in console.get("/usage", session).text
    console.metering.set_limits(SpendLimits(month_nanos=4 * DOLLAR, total_nanos=1000 * DOLLAR))
    text = console.get("/usage", session).text
    assert REACHED in text
    assert "of $4.00 a month is spent: new requests are refused until the first of the month, UTC." in text
    assert "in all is spent" not in text
    assert CHANGE in text
    assert CHANGE not in console.get("/credit/limits", session).text


def test_others_than_owners_are_told_whom_to_ask_about_a_limit(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.set_limits(SpendLimits(total_nanos=DOLLAR))
    console.auth.set_role(AccountRole.MEMBER)
    console.auth.set_role(AccountRole.OWNER, MEMBER_ID)
    text = console.get("/keys", console.auth.sign_in()).text
    assert REACHED in text
    assert "Ask: Charles Babbage." in text
    assert CHANGE not in text


def test_a_suspended_account_is_not_told_of_limits_too(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.set_limits(SpendLimits(total_nanos=DOLLAR))
    console.auth.change_account(suspended_at_us=NOW_US)
    text = console.get("/keys", console.auth.sign_in()).text
    assert "This account is suspended" in text
    assert REACHED not in text


def test_while_metering_is_away_or_hangs_pages_are_there_without_it(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.metering.leave(0)
    session = console.auth.sign_in()
    console.backends.fail = {BALANCE: not_answering()}
    away = console.get("/security", session)
    assert (away.status, OUT in away.text) == (200, False)
    console.backends.fail = {}

    async def hang(*_given: Any) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(MeteringServicer, "GetBalance", hang)
    console.backends.renew()
    monkeypatch.setattr("console.account.account_notices.WITHIN_S", 0.01)
    hanging = console.get("/security", session)
    assert (hanging.status, OUT in hanging.text) == (200, False)


def test_a_fault_of_the_notice_is_logged_and_costs_no_page(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = console.log_stream.getvalue().count("page.failed")
    monkeypatch.setattr("console.account.account_notices.notice_of", None)
    assert console.get("/security", console.auth.sign_in()).status == 200
    assert console.log_stream.getvalue().count("page.failed") == logged + 1
