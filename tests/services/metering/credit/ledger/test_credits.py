"""The rules of grants and adjustments."""

from services.chassis.errors import Reason
from services.metering.credit.ledger.credits import LARGEST_BALANCE_NANOS
from services.metering.credit.records import AccountBalance
from tests.services.metering.credit.ledger.paper import Ledger
from tests.services.metering.samples import ACCOUNT, adjust, grant, reserve


def test_grant_adds_credit_once() -> None:
    ledger = Ledger()
    for _ in range(2):
        assert ledger.apply(grant(500)) == AccountBalance(ACCOUNT, 500, 0)
    assert ledger.entries[-1].external_nanos == -500


def test_id_of_a_grant_is_not_taken_for_another() -> None:
    ledger = Ledger()
    ledger.apply(grant(500))
    assert ledger.refusal_of(grant(501)) is Reason.REQUEST_INVALID
    assert ledger.refusal_of(grant(500, account="acct_b")) is Reason.REQUEST_INVALID


def test_adjustment_takes_no_more_than_what_is_free() -> None:
    ledger = Ledger(500)
    ledger.apply(reserve(1, output=10))
    assert ledger.refusal_of(adjust(-401)) is Reason.REQUEST_INVALID
    assert ledger.apply(adjust(-400)) == ledger.apply(adjust(-400)) == AccountBalance(ACCOUNT, 100, 100)
    assert ledger.entries[-1].reason == "a test"


def test_balance_stays_within_the_database_s_integers() -> None:
    ledger = Ledger(LARGEST_BALANCE_NANOS)
    assert ledger.refusal_of(grant(1)) is Reason.REQUEST_INVALID
