"""What every page of an account says of requests that are refused."""

import asyncio
import re
from typing import Any

import pytest

from console.routes import PAGES
from services.chassis.access_tokens import AccountRole
from services.metering.credit.ledger.spend import SpendLimits
from services.metering.servicers.metering import MeteringServicer
from tests.console.auth_rows import MEMBER_ID, USER_ID, used
from tests.console.backends import not_answering
from tests.console.browser.pages import STATES
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR, before_us

OUT = "This account is out of credit"
REACHED = "A spend limit of this account is reached"
BALANCE = "MeteringService.GetBalance"
REFUSED = "that is in use is refused"
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


def test_a_key_in_use_whose_limit_is_reached_is_told_with_its_figures(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    assert REFUSED not in console.get("/security", session).text
    console.metering.reach_limit("key_0000000000000002")
    # Nobody has used it for months.
    console.metering.limit("key_0000000000000003", SpendLimits(day_nanos=0))
    text = console.get("/security", session).text
    assert REFUSED in text
    assert '<a href="/keys/key_0000000000000002">Website chat</a>' in text
    assert re.search(r"\$([0-9.]+) of \$\1 a day is spent: new requests are refused until midnight UTC\.", text)
    assert "Old laptop" not in text
    console.metering.limit("key_0000000000000002", SpendLimits(total_nanos=1000 * DOLLAR))
    assert REFUSED not in console.get("/security", session).text


def test_a_key_that_expired_while_it_was_used_is_told_until_it_is_revoked(console: ConsoleHarness) -> None:
    console.backends.fill()
    trial = console.auth.add_key("Trial", expires_at_us=before_us(days=1), last_used_hour_us=used(days=2))
    # It ended when nobody used it any more.
    console.auth.add_key("Forgotten", expires_at_us=before_us(days=1), last_used_hour_us=used(days=20))
    console.auth.add_key("Long gone", expires_at_us=before_us(days=8), last_used_hour_us=used(days=9))
    session = console.auth.sign_in()
    console.backends.fail = {BALANCE: not_answering()}
    text = console.get("/security", session).text
    assert REFUSED in text
    assert f'<a href="/keys/{trial.key_id}">Trial</a>' in text
    assert "Forgotten" not in text
    assert "Long gone" not in text
    console.post(f"/keys/{trial.key_id}/revoke", {}, session)
    assert REFUSED not in console.get("/security", session).text


def test_members_are_told_of_the_keys_that_they_created(console: ConsoleHarness) -> None:
    console.backends.fill()
    for maker, key_id in ((USER_ID, "key_0000000000000001"), (MEMBER_ID, "key_0000000000000002")):
        console.metering.limit(key_id, SpendLimits(day_nanos=0))
        expired = {"expires_at_us": before_us(days=1), "last_used_hour_us": used(days=2)}
        console.auth.add_key(f"Of {maker}", created_by=maker, **expired)
    console.auth.set_role(AccountRole.MEMBER)
    text = console.get("/security", console.auth.sign_in()).text
    assert "2 keys that are in use are refused" in text
    assert "Website chat" not in text
    assert f"Of {MEMBER_ID}" not in text


def test_keys_in_order_cost_a_page_no_call(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.limit("key_0000000000000001", SpendLimits(total_nanos=1000 * DOLLAR))
    session = console.auth.sign_in()
    console.backends.calls.clear()
    console.get("/security/password", session)
    assert "KeyAdminService.ListKeys" not in console.backends.calls


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
