"""What every page of an account says of credit that is used up, or soon will be."""

from dataclasses import replace

import pytest

from console.account.credit_notice import CreditNotice, notice_of
from console.web.visit import Console
from edge.billing.prompt_estimate import UNSEEN_PROMPT_TOKENS
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.access_tokens import AccountRole
from services.rules.cost import LEAST_PROMPT_TOKENS
from tests.console.auth_rows import MEMBER_ID
from tests.console.clock import NOW_US
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR, FILLED_BALANCE_NANOS

OUT = "This account is out of credit"
LOW = "Credit is getting low"
ADD = '" href="/credit/add">Add credit</a>'


def told(balance: int, *, owed: int = 0, threshold: int = DOLLAR, spent: int = 0) -> pb.GetBalanceResponse:
    return pb.GetBalanceResponse(
        balance=pb.Balance(balance_nanos=balance, owed_nanos=owed),
        least_input_nanos_per_million=100_000_000,
        outlook=pb.Outlook(low_balance_nanos=threshold, spent_7_days_nanos=spent),
    )


def test_credit_is_out_where_no_request_can_be_paid_and_low_by_the_threshold_or_the_pace() -> None:
    least_nanos = LEAST_PROMPT_TOKENS * 100
    out, low = CreditNotice(0, 0, True, None), CreditNotice(0, 0, False, None)
    expected: list[tuple[pb.GetBalanceResponse, CreditNotice | None]] = [
        (told(0), out),
        (told(least_nanos), replace(out, left_nanos=least_nanos)),
        (told(least_nanos + 1), replace(low, left_nanos=least_nanos + 1)),
        (told(DOLLAR - 1), replace(low, left_nanos=DOLLAR - 1)),
        (told(DOLLAR), None),
        # At seven dollars in seven days.
        (told(3 * DOLLAR, spent=7 * DOLLAR), None),
        (told(3 * DOLLAR - 1, spent=7 * DOLLAR), replace(low, left_nanos=3 * DOLLAR - 1, lasts_days=2)),
        # The owners want no notice: then only its end is told.
        (told(DOLLAR // 2, threshold=0, spent=7 * DOLLAR), None),
        (told(0, threshold=0), out),
        (told(0, owed=DOLLAR), replace(out, owed_nanos=DOLLAR)),
    ]
    for given, notice in expected:
        assert notice_of(given) == notice, given


def test_the_shortest_prompt_is_the_one_that_an_edge_holds_credit_for() -> None:
    assert LEAST_PROMPT_TOKENS == UNSEEN_PROMPT_TOKENS


def test_enough_credit_is_not_told(console: ConsoleHarness) -> None:
    console.backends.fill()
    text = console.get("/keys", console.auth.sign_in()).text
    assert OUT not in text
    assert LOW not in text


def test_low_credit_is_told_with_what_is_left_and_for_how_long(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.leave(DOLLAR // 2)
    text = console.get("/documents", console.auth.sign_in()).text
    assert f'{LOW}: <data value="0.50">$0.50</data> is left. At the pace of the last 7 days' in text
    assert ADD in text
    assert OUT not in text


def test_an_owner_is_led_to_where_credit_is_added_and_others_to_an_owner(console: ConsoleHarness) -> None:
    console.metering.leave(0)
    session = console.auth.sign_in()
    assert ADD in console.get("/keys", session).text
    assert ADD not in console.get("/credit/add", session).text
    for role in (AccountRole.MEMBER, AccountRole.VIEWER):
        console.auth.set_role(role)
        text = console.get("/usage", session).text
        assert OUT in text
        assert ADD not in text
        # No owner is left.
        assert "Ask an owner of the account to see to it." in text
    console.auth.set_role(AccountRole.OWNER, MEMBER_ID)
    assert "Ask: Charles Babbage." in console.get("/usage", session).text


def test_without_payments_an_owner_is_led_to_the_operator(
    console: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    console.metering.leave(0)
    monkeypatch.setattr(console.console.services, "payments", None)
    session = console.auth.sign_in()
    text = console.get("/keys", session).text
    assert "Ask the operator of this service for more." in text
    assert ADD not in text
    monkeypatch.setattr(Console, "contact_email", "billing@legato.example")
    assert '<a href="mailto:billing@legato.example">billing@legato.example</a>' in console.get("/keys", session).text


def test_a_suspended_account_is_told_of_credit_that_is_out_and_not_of_low_credit(console: ConsoleHarness) -> None:
    console.auth.change_account(suspended_at_us=NOW_US)
    console.metering.leave(DOLLAR // 2)
    session = console.auth.sign_in()
    assert LOW not in console.get("/", session).text
    console.metering.leave(0)
    text = console.get("/", session).text
    assert OUT in text
    assert "When it is resumed, it needs credit, too." in text


def test_what_is_owed_is_told_instead(console: ConsoleHarness) -> None:
    console.metering.owe(4_350_000_000)
    text = console.get("/requests", console.auth.sign_in()).text
    assert "This account owes $4.35" in text
    assert OUT not in text


def test_a_form_that_is_refused_and_a_page_that_is_missing_tell_it_and_operators_pages_do_not(
    console: ConsoleHarness,
) -> None:
    console.auth.be_operator()
    console.metering.leave(0)
    session = console.auth.sign_in()
    refused = console.post("/credit/add", {"form_id": "a1", "other": "ten"}, session)
    assert (refused.status, OUT in refused.text) == (400, True)
    missing = console.get("/nowhere", session)
    assert (missing.status, OUT in missing.text) == (404, True)
    for path in ("/operator/accounts", "/operator/nowhere"):
        assert OUT not in console.get(path, session).text


def test_the_threshold_is_the_one_of_notices(console: ConsoleHarness) -> None:
    console.backends.fill()
    console.metering.change("UPDATE accounts SET low_balance_nanos = :nanos", nanos=FILLED_BALANCE_NANOS + 1)
    session = console.auth.sign_in()
    assert LOW in console.get("/keys", session).text
    console.post("/settings/notices/low-balance", {"low_balance": "0"}, session)
    assert LOW not in console.get("/keys", session).text
