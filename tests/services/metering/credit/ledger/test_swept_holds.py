"""The rules of a request that was never settled, and of what is said about it later."""

from services.metering.credit.records import HOUR_US, Settled, Swept
from services.rules.usage import Usage
from tests.services.metering.credit.ledger.paper import LIFE_US, START_US, Ledger
from tests.services.metering.samples import extend, grant, reserve, settle, sweep, void


def test_sweep_spares_a_hold_until_its_deadline_has_passed() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.now_us += LIFE_US
    assert ledger.apply(sweep(1)) == Swept(False)
    ledger.now_us += 1
    assert ledger.apply(sweep(1)).swept


def test_sweep_charges_the_checkpoint_and_names_what_may_be_lost() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    ledger.apply(extend(1, 200, delivered=Usage(completion_tokens=4)))
    assert ledger.past_the_deadline().apply(sweep(1)) == Swept(True, 40, 160)
    assert (ledger.balance_nanos, ledger.held_nanos, ledger.hold(1).state) == (960, 0, "swept")
    assert ledger.apply(sweep(1)) == Swept(False)


def test_sweep_without_a_checkpoint_charges_nothing() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    assert ledger.past_the_deadline().apply(sweep(1)) == Swept(True, 0, 100)
    assert [entry.kind for entry in ledger.entries] == ["grant"]


def test_late_settle_of_a_swept_hold_charges_the_rest_in_the_same_hour() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    ledger.apply(extend(1, 0, delivered=Usage(completion_tokens=4)))
    ledger.past_the_deadline().apply(sweep(1))
    ledger.now_us += 2 * HOUR_US
    for _ in range(2):
        assert ledger.apply(settle(1, prompt=1, completion=7)) == Settled(72, 0)
    assert (ledger.balance_nanos, ledger.hold(1).loss_bound_nanos) == (928, 0)
    late = ledger.entries[-1]
    assert (late.kind, late.customer_nanos, late.requests, late.hour_us) == ("late_charge", -32, 0, START_US)
    assert (late.prompt_tokens, late.completion_tokens) == (1, 3)


def test_late_settle_takes_only_free_credit_and_books_the_rest_as_loss() -> None:
    ledger = Ledger(100)
    ledger.apply(reserve(1, output=10))
    ledger.past_the_deadline().apply(sweep(1))
    ledger.apply(reserve(2, output=7))
    assert ledger.apply(settle(1, completion=10)) == Settled(30, 70)
    assert (ledger.balance_nanos, ledger.held_nanos) == (70, 70)


def test_late_settle_of_what_was_swept_takes_what_was_lost_from_credit_that_is_free_by_now() -> None:
    ledger = Ledger(100)
    ledger.apply(reserve(1, output=10))
    ledger.apply(extend(1, 150, delivered=Usage(completion_tokens=15)))
    ledger.past_the_deadline().apply(sweep(1))
    assert (ledger.hold(1).charged_nanos, ledger.hold(1).loss_nanos) == (100, 50)
    ledger.apply(grant(70, grant_id="more"))
    assert ledger.apply(settle(1, completion=15)) == Settled(150, 0)
    assert ledger.balance_nanos == 20
    late = ledger.entries[-1]
    assert (late.kind, late.customer_nanos, late.revenue_nanos, late.loss_nanos) == ("late_charge", -50, 0, 50)


def test_late_settle_below_the_checkpoint_lets_the_checkpoint_stand() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    ledger.apply(extend(1, 0, delivered=Usage(completion_tokens=4)))
    ledger.past_the_deadline().apply(sweep(1))
    assert ledger.apply(settle(1, completion=3)) == Settled(40, 0)
    assert (ledger.hold(1).state, ledger.balance_nanos) == ("settled", 960)


def test_late_void_counts_only_where_nothing_was_charged() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.apply(reserve(2))
    ledger.apply(extend(2, 0, delivered=Usage(completion_tokens=1)))
    ledger.past_the_deadline()
    for number, state in ((1, "void"), (2, "swept")):
        ledger.apply(sweep(number))
        ledger.apply(void(number))
        assert ledger.hold(number).state == state
