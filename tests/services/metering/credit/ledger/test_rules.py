"""Rules that hold whatever comes, however often, in any order."""

import contextlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import LegatoError
from services.metering.credit.records import AccountBalance, Checkpoint, Extend, Operation, Settle
from services.rules.usage import Usage
from tests.services.metering.credit.ledger.paper import LIFE_US, Ledger
from tests.services.metering.samples import ACCOUNT, PRICES, adjust, extend, grant, request_id, reserve, sweep, void

# Few requests, so that what is said about them collides.
numbers = st.integers(1, 2)
usages = st.builds(
    lambda prompt, cached, completion: Usage(prompt, min(prompt, cached), completion),
    st.integers(0, 20), st.integers(0, 20), st.integers(0, 20),
)  # fmt: skip
operations: st.SearchStrategy[Operation[Any]] = st.one_of(
    st.builds(lambda n, usage: reserve(n, prompt=usage.prompt_tokens, output=usage.completion_tokens), numbers, usages),
    st.builds(lambda n, total, usage: extend(n, total, delivered=usage), numbers, st.integers(0, 400), usages),
    st.builds(lambda n, usage: Checkpoint(request_id(n), ACCOUNT, usage), numbers, usages),
    st.builds(lambda n, usage: Settle(request_id(n), ACCOUNT, usage, "counted", "client_gone"), numbers, usages),
    st.builds(lambda n, usage: void(n, lost=usage), numbers, usages),
    st.builds(sweep, numbers),
    st.builds(lambda amount, n: grant(amount, grant_id=f"grant-{n}"), st.integers(1, 300), numbers),
    st.builds(lambda amount, n: adjust(amount, adjustment_id=f"adjust-{n}"), st.integers(-100, 100), numbers),
)  # fmt: skip
# Time goes on between operations, now and then far enough for holds to be swept.
steps = st.lists(st.tuples(operations, st.sampled_from([0, 1, LIFE_US, LIFE_US + 1])), max_size=30)


@given(st.integers(0, 500), steps)
def test_books_agree_whatever_comes_in_whichever_order(
    balance_nanos: int, story: list[tuple[Operation[Any], int]]
) -> None:
    ledger = Ledger(balance_nanos)
    named_nanos: dict[str, int] = {}
    for operation, later_us in story:
        ledger.now_us += later_us
        if isinstance(operation, Settle | Extend | Checkpoint):
            usage = operation.usage if isinstance(operation, Settle) else operation.delivered
            cost_nanos = PRICES["forte"].cost_nanos(usage)
            named_nanos[operation.request_id] = max(cost_nanos, named_nanos.get(operation.request_id, 0))
        with contextlib.suppress(LegatoError):
            ledger.apply(operation)
        check_books(ledger, named_nanos)


def check_books(ledger: Ledger, named_nanos: dict[str, int]) -> None:
    account = ledger.accounts.get(ACCOUNT, AccountBalance(ACCOUNT))
    assert account.balance_nanos == sum(entry.customer_nanos for entry in ledger.entries)
    live = [hold for hold in ledger.holds.values() if hold.state == "held"]
    assert account.held_nanos == sum(hold.amount_nanos for hold in live)
    assert 0 <= account.held_nanos <= account.balance_nanos
    kinds = [(entry.kind, entry.request_id) for entry in ledger.entries]
    assert len(kinds) == len(set(kinds))
    for entry in ledger.entries:
        assert entry.customer_nanos + entry.revenue_nanos + entry.loss_nanos + entry.external_nanos == 0
    for hold in ledger.holds.values():
        bookings = [entry for entry in ledger.entries if entry.request_id == hold.request_id]
        assert hold.charged_nanos == -sum(entry.customer_nanos for entry in bookings)
        assert hold.loss_nanos == -sum(entry.loss_nanos for entry in bookings)
        assert hold.charged_nanos <= named_nanos.get(hold.request_id, 0)
        if hold.state in ("settled", "swept"):
            assert hold.booked_nanos == PRICES["forte"].cost_nanos(hold.usage)
        else:
            assert hold.charged_nanos == 0
