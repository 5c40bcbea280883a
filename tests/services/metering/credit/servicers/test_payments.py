"""Card payments in the ledger: states of a payment may be told in any order and number, and money is booked once."""

from dataclasses import dataclass, field
from itertools import count

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from legato_protos.metering.v1 import payment_booking_pb2 as pb
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.audit.auditor import find_violations
from services.metering.credit.prices import Prices
from services.metering.credit.records import Adjust, Entry, RestorePayment, ReturnPayment
from services.metering.credit.servicers.payments import to_bookings
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.batches import write_operations
from services.metering.credit.store.tables import ledger
from tests.services.metering.credit.ledger.paper import Ledger
from tests.services.metering.samples import ACCOUNT, LIFE_S

PAID_NANOS = 1_000
examples = count(1)


@dataclass
class Return:
    amount_nanos: int
    is_restored: bool = False


@dataclass
class World:
    """What happens to a payment at the provider, and each state that may have been seen."""

    returns: list[Return] = field(default_factory=list)
    states: list[list[Return]] = field(default_factory=list)

    def happen(self, change: int) -> None:
        """Makes a new return of an amount, or, if it is negative, ends one that came to nothing."""
        if change > 0:
            self.returns.append(Return(change))
        elif self.returns:
            self.returns[change % len(self.returns)].is_restored = True
        self.states.append([Return(each.amount_nanos, each.is_restored) for each in self.returns])

    @property
    def kept_nanos(self) -> int:
        return PAID_NANOS - sum(each.amount_nanos for each in self.returns if not each.is_restored)


def told(account_id: str, state: list[Return]) -> pb.BookPaymentRequest:
    return pb.BookPaymentRequest(
        account_id=account_id,
        payment_id=f"{account_id}-pi",
        paid_nanos=PAID_NANOS,
        reason="Card payment",
        returns=[
            pb.PaymentReturn(
                return_id=f"{account_id}-re-{number}",
                amount_nanos=each.amount_nanos,
                reason="Refund",
                is_restored=each.is_restored,
                restored_reason="Refund failed",
            )
            for number, each in enumerate(state)
        ],
    )


def entries_of(database: Database, account_id: str) -> list[Entry]:
    query = sa.select(ledger).where(ledger.c.account_id == account_id).order_by(ledger.c.entry_id)
    with database.transaction(writes=False) as connection:
        return [Entry(*row[1:]) for row in connection.execute(query)]


changes = st.lists(st.one_of(st.integers(1, PAID_NANOS), st.integers(-3, -1)), max_size=6)


@pytest.mark.hypothesis
def test_states_in_any_order_and_number_lose_nothing_and_double_nothing(database: Database, prices: Prices) -> None:
    tell_states(database, prices)
    with database.transaction(writes=False) as connection:
        assert find_violations(connection) == []


@given(data=st.data(), happened=changes, spent=st.lists(st.integers(1, 700), max_size=3), together=st.booleans())
def tell_states(
    database: Database, prices: Prices, data: st.DataObject, happened: list[int], spent: list[int], together: bool
) -> None:
    world, account_id = World(), f"acct-{next(examples)}"
    world.happen(-1)
    for change in happened:
        world.happen(change)
    # Old states may come after new ones; the last one comes, as the provider tells it until it is taken.
    seen = data.draw(st.lists(st.sampled_from(world.states), max_size=8))
    seen.insert(data.draw(st.integers(0, len(seen))), world.states[-1])
    steps = [to_bookings(told(account_id, state)) for state in seen]
    for number, nanos in enumerate(spent):
        at = data.draw(st.integers(0, len(steps)))
        steps.insert(at, [Adjust(f"{account_id}-spent-{number}", account_id, -nanos, "spent")])
    batches = [[each for step in steps for each in step]] if together else [[each] for step in steps for each in step]
    for batch in batches:
        with database.transaction(writes=True) as connection:
            outcomes = write_operations(connection, batch, prices, round(LIFE_S * 1e6))
        # Only what was spent may be refused.
        for operation, outcome in zip(batch, outcomes, strict=True):
            assert not isinstance(outcome, LegatoError) or isinstance(operation, Adjust)
    entries = {entry.request_id: entry for entry in entries_of(database, account_id)}
    spent_nanos = -sum(entry.customer_nanos for entry in entries.values() if entry.reason == "spent")
    assert -sum(entry.external_nanos for entry in entries.values()) == world.kept_nanos - spent_nanos
    for number, each in enumerate(world.returns):
        returned = entries[f"{account_id}-re-{number}"]
        assert (returned.external_nanos, returned.revenue_nanos) == (each.amount_nanos, 0)
        restored = entries.get(f"{account_id}-re-{number}-restored")
        assert (restored is not None) == each.is_restored
        if restored is not None:
            assert (restored.external_nanos, restored.revenue_nanos) == (-each.amount_nanos, 0)
    with database.transaction(writes=False) as connection:
        [account] = read_balances(connection, [account_id])
    # What was paid and neither returned nor spent is there; what is missing is owed, and nothing else.
    left_nanos = world.kept_nanos - spent_nanos
    assert (account.balance_nanos, account.owed_nanos) == (max(0, left_nanos), max(0, -left_nanos))


def test_what_contradicts_the_ledger_is_refused_and_changes_nothing() -> None:
    books = Ledger(100)
    books.apply(ReturnPayment("re", ACCOUNT, 90, "Refund"))
    for operation in (
        ReturnPayment("re", ACCOUNT, 91, "Refund"),
        ReturnPayment("re", "acct_other", 90, "Refund"),
        RestorePayment("unknown-restored", ACCOUNT, 90, "unknown", "failed"),
        RestorePayment("re-restored", ACCOUNT, 89, "re", "failed"),
        RestorePayment("re-restored", "acct_other", 90, "re", "failed"),
    ):
        with pytest.raises(LegatoError) as refused:
            books.apply(operation)
        assert refused.value.reason is Reason.REQUEST_INVALID
    assert len(books.entries) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"account_id": ""},
        {"payment_id": "a b"},
        {"paid_nanos": 0},
        {"paid_nanos": 10**15 + 1},
        {"reason": ""},
        {"reason": "two\nlines"},
        {"returns": [pb.PaymentReturn(return_id="re", reason="Refund")]},
        {"returns": [pb.PaymentReturn(return_id="r" * 60, amount_nanos=1, reason="Refund", is_restored=True)]},
    ],
)
def test_bookings_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    request = told(ACCOUNT, [Return(10)])
    for name, value in wrong.items():
        request.ClearField(name)  # type: ignore[arg-type]
        request.MergeFrom(pb.BookPaymentRequest(**{name: value}))  # type: ignore[arg-type]
    with pytest.raises(LegatoError) as refused:
        to_bookings(request)
    assert refused.value.reason is Reason.REQUEST_INVALID
