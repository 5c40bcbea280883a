"""Rules that set spend limits, in one batch with other operations: answers, rows and what the audit log is told."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.changes import Change, from_json
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.metering.audit.auditor import audit
from services.metering.credit.ledger.spend import (
    WHOLE_ACCOUNT,
    InheritSpendLimits,
    SetSpendLimits,
    Spend,
    SpendLimits,
    spend_id,
)
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    COMMAND_LINE,
    AccountBalance,
    ChangedBy,
    Operation,
    Reserved,
    ReturnPayment,
    Settled,
)
from services.metering.credit.store.batches import write_operations
from services.metering.credit.store.tables import account_changes, accounts, holds, ledger, spends
from tests.services.metering.samples import ACCOUNT, KEY, PRICES, grant, reserve, settle

pytestmark = pytest.mark.sqlite_suffices

ADA = ChangedBy("usr_ada", "ses_one")
NEW_KEY = "key_new"
THIRD_KEY = "key_third"
EXCEEDS = "The total spend limit of a key cannot exceed the account's."
HELD = "The rest of the key's total spend limit is held by requests that are running. Please retry when one has ended."
USED = "The key was used before, so it cannot replace another. Set its limits instead."

Ask = Callable[..., list[Any]]
# Of which key the audit log is told, who changed it, and the total limit before and after.
Told = tuple[str, ChangedBy, int | None, int | None]


@pytest.fixture
def ask(database: Database, prices: Prices) -> Ask:
    """Writes operations as one batch. A refusal is answered as its message, a spend without its day and month."""

    def write(*operations: Operation[Any]) -> list[Any]:
        with database.transaction(writes=True) as connection:
            outcomes = write_operations(connection, operations, prices, life_us=10**9)
        return [_comparable(outcome) for outcome in outcomes]

    return write


def _comparable(outcome: Any) -> Any:
    if isinstance(outcome, LegatoError):
        return outcome.message
    return _undated(outcome) if isinstance(outcome, Spend) else outcome


def _undated(found: Spend) -> Spend:
    assert bool(found.day_us) == bool(found.month_us)
    return replace(found, day_us=0, month_us=0)


def limit(key: str, total_nanos: int | None, by: ChangedBy | None = ADA) -> SetSpendLimits:
    return SetSpendLimits(ACCOUNT, key, SpendLimits(total_nanos=total_nanos), by)


def inherit(key: str, replaced_key: str, total_nanos: int | None = None) -> InheritSpendLimits:
    return InheritSpendLimits(ACCOUNT, key, SpendLimits(total_nanos=total_nanos), ADA, replaced_key_id=replaced_key)


def spend(key: str, total_nanos: int | None, *, spent_nanos: int = 0, held_nanos: int = 0, of: str = "") -> Spend:
    """Returns what a key has spent today, or that of another key, `of`, which it shares."""
    return Spend(
        spend_id(ACCOUNT, of or key),
        ACCOUNT,
        key,
        total_limit_nanos=total_nanos,
        day_spent_nanos=spent_nanos,
        month_spent_nanos=spent_nanos,
        total_spent_nanos=spent_nanos,
        held_nanos=held_nanos,
    )


def sharing(key: str, owner: str) -> Spend:
    return Spend(spend_id(ACCOUNT, key), ACCOUNT, key, shared_spend_id=spend_id(ACCOUNT, owner))


def reserved(held_nanos: int, free_nanos: int) -> Reserved:
    return Reserved(held_nanos, free_nanos, 1, PRICES["forte"])


def rows_of_spends(database: Database) -> list[Spend]:
    with database.transaction(writes=False) as connection:
        found = connection.execute(sa.select(spends).order_by(spends.c.spend_id))
        return [_undated(Spend(*row)) for row in found]


def rows_of_accounts(database: Database) -> list[AccountBalance]:
    with database.transaction(writes=False) as connection:
        return [AccountBalance(*row) for row in connection.execute(sa.select(accounts))]


def count_rows(database: Database) -> tuple[int, int]:
    """Returns how many holds and how many entries there are."""
    with database.transaction(writes=False) as connection:
        return len(connection.execute(sa.select(holds)).all()), len(connection.execute(sa.select(ledger)).all())


def told(database: Database) -> list[Told]:
    """Returns what the audit log is told, by key, and then by the limit before."""
    with database.transaction(writes=False) as connection:
        rows = connection.execute(sa.select(account_changes)).all()
    found: list[Told] = []
    for row in rows:
        assert (row.action, row.account_id) == ("spend_limits.changed", ACCOUNT)
        assert row.recorded_at_us > 0
        [change] = from_json(row.changes)
        assert change == Change("spend_total_nanos", change.before, change.after)
        before, after = change.before, change.after
        assert isinstance(before, int | None)
        assert isinstance(after, int | None)
        found.append((row.key_id, ChangedBy(row.user_id, row.session_id), before, after))
    return sorted(found, key=lambda each: (each[0], each[2] or 0))


async def test_each_reserve_of_a_batch_meets_the_limits_that_were_set_before_it(ask: Ask, database: Database) -> None:
    ask(grant(1_000))
    assert ask(
        reserve(1),
        limit(KEY, 170),
        reserve(2, output=5),
        limit(KEY, 160, COMMAND_LINE),
        reserve(3, output=5),
        reserve(4),
        settle(1, completion=4),
        reserve(5, output=5),
    ) == [
        reserved(100, 900),
        spend(KEY, 170, held_nanos=100),
        reserved(50, 20),
        spend(KEY, 160, held_nanos=150),
        reserved(10, 0),
        HELD,
        Settled(40, 0),
        reserved(50, 10),
    ]
    assert rows_of_spends(database) == [spend(KEY, 160, spent_nanos=40, held_nanos=110)]
    assert rows_of_accounts(database) == [AccountBalance(ACCOUNT, 960, 110, has_spend_limits=True)]
    assert told(database) == [(KEY, ADA, None, 170), (KEY, COMMAND_LINE, 170, 160)]
    assert count_rows(database) == (4, 2)
    assert await audit(database) == []


def test_limits_that_are_set_again_are_answered_alike_and_told_once(ask: Ask, database: Database) -> None:
    ask(grant(1_000), reserve(1))
    limited = spend(KEY, 200, held_nanos=100)
    assert ask(limit(KEY, 200), limit(KEY, 200, COMMAND_LINE)) == [limited, limited]
    assert ask(limit(KEY, 200)) == [limited]
    assert rows_of_spends(database) == [limited]
    assert told(database) == [(KEY, ADA, None, 200)]
    assert ask(limit(KEY, None)) == [spend(KEY, None, held_nanos=100)]
    assert rows_of_spends(database) == [spend(KEY, None, held_nanos=100)]
    assert told(database) == [(KEY, ADA, None, 200), (KEY, ADA, 200, None)]
    assert rows_of_accounts(database) == [AccountBalance(ACCOUNT, 1_000, 100, has_spend_limits=True)]


def test_limits_that_come_with_a_new_key_are_not_told_again(ask: Ask, database: Database) -> None:
    ask(grant(1_000))
    assert ask(limit(KEY, 90, None), reserve(1)) == [spend(KEY, 90), reserved(90, 0)]
    assert rows_of_spends(database) == [spend(KEY, 90, held_nanos=90)]
    assert told(database) == []


def test_limits_without_an_amount_are_recorded_and_not_told(ask: Ask, database: Database) -> None:
    """The account was not known: its row comes with them."""
    assert ask(limit(KEY, None)) == [spend(KEY, None)]
    assert rows_of_spends(database) == [spend(KEY, None)]
    assert rows_of_accounts(database) == [AccountBalance(ACCOUNT, has_spend_limits=True)]
    assert told(database) == []


def test_refused_limits_leave_those_of_the_same_batch_and_nothing_else(ask: Ask, database: Database) -> None:
    ask(grant(1_000))
    assert ask(
        limit(WHOLE_ACCOUNT, 100), limit(KEY, 60), limit(KEY, 101), limit(NEW_KEY, 101), reserve(1), reserve(2)
    ) == [
        spend(WHOLE_ACCOUNT, 100),
        spend(KEY, 60),
        EXCEEDS,
        EXCEEDS,
        reserved(60, 0),
        HELD,
    ]
    assert rows_of_spends(database) == [spend(WHOLE_ACCOUNT, 100, held_nanos=60), spend(KEY, 60, held_nanos=60)]
    assert told(database) == [(WHOLE_ACCOUNT, ADA, None, 100), (KEY, ADA, None, 60)]
    assert ask(limit(KEY, 101)) == [EXCEEDS]
    assert told(database) == [(WHOLE_ACCOUNT, ADA, None, 100), (KEY, ADA, None, 60)]


def test_a_key_that_was_used_inherits_nothing_and_its_account_stays_without_limits(
    ask: Ask, database: Database
) -> None:
    ask(grant(1_000))
    assert ask(reserve(1, key=NEW_KEY), inherit(NEW_KEY, KEY)) == [reserved(100, 900), USED]
    assert rows_of_spends(database) == []
    assert rows_of_accounts(database) == [AccountBalance(ACCOUNT, 1_000, 100)]
    assert told(database) == []


def test_a_key_that_replaces_another_shares_its_limits_from_then_on_in_the_batch(ask: Ask, database: Database) -> None:
    ask(grant(1_000))
    assert ask(
        reserve(1),
        limit(KEY, 250),
        inherit(NEW_KEY, KEY),
        reserve(2, key=NEW_KEY),
        inherit(NEW_KEY, KEY),
        limit(NEW_KEY, 220),
        reserve(3),
        inherit(THIRD_KEY, "key_without", 70),
        inherit(THIRD_KEY, KEY),
        settle(1, completion=3),
    ) == [
        reserved(100, 900),
        spend(KEY, 250, held_nanos=100),
        spend(NEW_KEY, 250, held_nanos=100, of=KEY),
        reserved(100, 50),
        spend(NEW_KEY, 250, held_nanos=200, of=KEY),
        spend(NEW_KEY, 220, held_nanos=200, of=KEY),
        reserved(20, 0),
        spend(THIRD_KEY, 70),
        spend(THIRD_KEY, 70),
        Settled(30, 0),
    ]
    assert rows_of_spends(database) == [
        spend(KEY, 220, spent_nanos=30, held_nanos=120),
        sharing(NEW_KEY, KEY),
        spend(THIRD_KEY, 70),
    ]
    assert told(database) == [
        (KEY, ADA, None, 250),
        (NEW_KEY, ADA, None, 250),
        (NEW_KEY, ADA, 250, 220),
        (THIRD_KEY, ADA, None, 70),
    ]


def test_a_lower_limit_of_the_account_lowers_those_of_its_keys_and_only_itself_is_told(
    ask: Ask, database: Database
) -> None:
    ask(grant(1_000))
    ask(limit(KEY, 250), limit(THIRD_KEY, 40), inherit(NEW_KEY, KEY))
    assert ask(reserve(1), limit(WHOLE_ACCOUNT, 120), reserve(2, key=NEW_KEY), limit(WHOLE_ACCOUNT, 500)) == [
        reserved(100, 150),
        spend(WHOLE_ACCOUNT, 120, held_nanos=100),
        reserved(20, 0),
        spend(WHOLE_ACCOUNT, 500, held_nanos=120),
    ]
    assert rows_of_spends(database) == [
        spend(WHOLE_ACCOUNT, 500, held_nanos=120),
        spend(KEY, 120, held_nanos=120),
        sharing(NEW_KEY, KEY),
        spend(THIRD_KEY, 40),
    ]
    assert told(database) == [
        (WHOLE_ACCOUNT, ADA, None, 120),
        (WHOLE_ACCOUNT, ADA, 120, 500),
        (KEY, ADA, None, 250),
        (NEW_KEY, ADA, None, 250),
        (THIRD_KEY, ADA, None, 40),
    ]


def test_limits_of_one_account_leave_those_of_another_in_the_batch(ask: Ask, database: Database) -> None:
    other = SetSpendLimits("acct_b", KEY, SpendLimits(total_nanos=300), ADA)
    _, of_other, _ = ask(limit(KEY, 200), other, limit(WHOLE_ACCOUNT, 100))
    assert of_other == Spend(f"acct_b/{KEY}", "acct_b", KEY, total_limit_nanos=300)
    assert rows_of_spends(database) == [spend(WHOLE_ACCOUNT, 100), spend(KEY, 100), of_other]


def test_limits_of_an_account_that_owes_take_nothing(ask: Ask, database: Database) -> None:
    ask(grant(100), reserve(1), ReturnPayment("refund-1", ACCOUNT, 50, "a refund"))
    assert ask(limit(KEY, 200), limit(WHOLE_ACCOUNT, 300)) == [
        spend(KEY, 200, held_nanos=100),
        spend(WHOLE_ACCOUNT, 300, held_nanos=100),
    ]
    assert rows_of_accounts(database) == [AccountBalance(ACCOUNT, 100, 100, has_spend_limits=True, owed_nanos=50)]
    assert count_rows(database) == (1, 2)
