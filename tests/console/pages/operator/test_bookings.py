"""Credit that operators book."""

import re

import pytest

from services.chassis.changes import Change
from tests.console.auth_rows import OTHER_ACCOUNT_ID, RECOVERY_CODE
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import DOLLAR

ACCOUNT_ID = OTHER_ACCOUNT_ID
ACCOUNT = f"/operator/accounts/{ACCOUNT_ID}"
FIRST_GRANT = f"grant-{ACCOUNT_ID}"


CREDIT = {"kind": "grant", "amount": "5.00", "amount_again": "5.00", "reason": "", "operation_id": "0af3"}


def requested(console: ConsoleHarness) -> list[str]:
    """Returns what was booked by forms of this test, as the audit log has it."""
    events = console.auth.events("credit.grant_requested", "credit.adjustment_requested")
    return [event.object_id for event in events if event.object_id != "user_1-6f1b2c"]


def test_a_form_that_is_sent_twice_books_once(console: ConsoleHarness, session: str) -> None:
    before = console.metering.balance_nanos(ACCOUNT_ID)
    for _ in range(2):
        assert console.post(f"{ACCOUNT}/credit", CREDIT, session).status == 303
    assert console.metering.balance_nanos(ACCOUNT_ID) == before + 5 * DOLLAR
    assert requested(console) == ["user_1-0af3"] * 2
    [_, event] = console.auth.events("credit.grant_requested")[-2:]
    assert event.changes == (Change("amount_nanos", None, 5 * DOLLAR),)
    assert "Amount: $5.00" in console.get("/operator/audit-log", session).text


def test_each_visit_has_a_booking_of_its_own(console: ConsoleHarness, session: str) -> None:
    ids = [re.findall(r'name="operation_id" value="(\w+)"', console.get(ACCOUNT, session).text) for _ in range(2)]
    assert len(ids[0]) == 1
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"amount_again": "50.00"}, "The two amounts differ"),
        # An operator who writes decimals with a comma does not grant a hundred times as much.
        ({"amount": "5,00", "amount_again": "5,00"}, "such as 5.00"),
        ({"amount": "-5", "amount_again": "-5"}, "A grant is more than zero"),
        ({"kind": "adjustment"}, "needs a reason"),
        ({"kind": "other"}, "Choose a grant or an adjustment"),
        ({"amount": "1000001", "amount_again": "1000001"}, "At most a million dollars"),
    ],
)
def test_a_booking_with_a_mistake_is_not_made(
    console: ConsoleHarness, session: str, changed: dict[str, str], problem: str
) -> None:
    answer = console.post(f"{ACCOUNT}/credit", CREDIT | changed, session)
    assert answer.status == 400
    assert problem in answer.text
    assert console.metering.entry_ids(ACCOUNT_ID) == [FIRST_GRANT]
    assert requested(console) == []


def test_a_booking_whose_outcome_is_unknown_is_sent_again_under_the_same_id(
    console: ConsoleHarness, session: str
) -> None:
    console.backends.fail = {"CreditAdminService.GrantCredits": not_answering()}
    answer = console.post(f"{ACCOUNT}/credit", CREDIT, session)
    assert answer.status == 503
    assert "It is not known whether this was booked" in answer.text
    assert 'name="operation_id" value="0af3"' in answer.text
    assert 'name="amount" type="text" value="5.00"' in answer.text


def test_a_booking_asks_again_who_it_is_and_is_then_made_and_noted_once(console: ConsoleHarness, session: str) -> None:
    console.auth.add_recovery_codes()
    console.auth.grow_stale()
    asked = console.post(f"{ACCOUNT}/credit", CREDIT, session)
    assert asked.status == 403
    assert requested(console) == []
    match = re.search(r'name="pending" value="([^"]*)"', asked.text)
    assert match
    pending = match[1].replace("&#34;", '"').replace("&quot;", '"')
    fields = {"pending": pending, "kind": "recovery", "code": RECOVERY_CODE}
    assert console.post("/confirm", fields, session).status == 303
    assert console.metering.entry_ids(ACCOUNT_ID) == [FIRST_GRANT, "user_1-0af3"]
    assert requested(console) == ["user_1-0af3"]
