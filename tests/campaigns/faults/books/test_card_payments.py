"""The judge of card payments sees what it must see, and nothing else."""

import pytest

from services.metering.credit.records import Entry
from tests.campaigns.faults.books.card_payments import Booking, judge_bookings, judge_owed
from tests.campaigns.faults.books.ledger import Account, ChargeEver

BOOKINGS = {
    "stripe-pi_1": Booking("grant", -100),
    "stripe-re_1": Booking("adjustment", 40),
    "stripe-re_1-restored": Booking("adjustment", -40),
}
PAID = Entry("grant", "stripe-pi_1", "acct_ann", 100, 0, external_nanos=-100)
RETURNED = Entry("adjustment", "stripe-re_1", "acct_ann", -30, 0, loss_nanos=-10, external_nanos=40)
RESTORED = Entry("adjustment", "stripe-re_1-restored", "acct_ann", 40, 0, external_nanos=-40)
BY_OPERATORS = Entry("grant", "welcome", "acct_ann", 5, 0, external_nanos=-5)


@pytest.mark.parametrize(
    ("credits", "kinds"),
    [
        ([BY_OPERATORS, PAID, RETURNED, RESTORED], []),
        ([PAID, RETURNED], ["lost"]),
        ([PAID, PAID, RETURNED, RESTORED], ["doubled"]),
        ([PAID, Entry("grant", "stripe-pi_2", "acct_ann", 1, 0, external_nanos=-1), RETURNED, RESTORED], ["doubled"]),
        ([Entry("grant", "stripe-pi_1", "acct_ann", 99, 0, external_nanos=-99), RETURNED, RESTORED], ["lost"]),
        ([Entry("grant", "stripe-pi_1", "acct_ann", 99, 0, external_nanos=-100), RETURNED, RESTORED], ["lost"]),
        (
            [
                PAID,
                RETURNED,
                Entry("adjustment", "stripe-re_1-restored", "acct_ann", 30, 0, loss_nanos=10, external_nanos=-40),
            ],
            ["lost"],
        ),
    ],
)
def test_each_booking_is_made_once_and_with_all_of_its_legs(credits: list[Entry], kinds: list[str]) -> None:
    assert [violation.kind for violation in judge_bookings(BOOKINGS, credits)] == kinds


@pytest.mark.parametrize(
    ("balance_nanos", "owed_nanos", "charged_nanos", "kinds"),
    [
        (60, 0, 0, []),
        (0, 10, 70, []),
        (10, 0, 70, ["lost"]),
        (0, 0, 70, ["lost"]),
        (10, 20, 70, ["lost"]),
        (0, 20, 70, ["doubled"]),
        (50, 0, 0, ["doubled"]),
    ],
)
def test_what_is_not_there_is_owed(balance_nanos: int, owed_nanos: int, charged_nanos: int, kinds: list[str]) -> None:
    account = Account(balance_nanos, owed_nanos=owed_nanos, credits_ever=[PAID, RETURNED])
    account.charges_ever.append(ChargeEver("key", 0, charged_nanos))
    assert [violation.kind for violation in judge_owed(account)] == kinds
