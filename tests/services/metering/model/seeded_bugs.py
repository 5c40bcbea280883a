"""Mistakes that the protocol rules out, each as a small patch: the checks of the books must notice them.

`RULES`, `LIMITS` and `STORE` are met by random stories. `RACES` need two replicas at the same place at the same time,
so each patch also brings them together there. The other mistakes of the protocol's list are the edge's.

What cannot be had here, and why:

- Read, then write unguarded, or the amount from before the lock, on SQLite. BEGIN IMMEDIATE lets no other write from
  before the first read until the commit; and a transaction that begins without it may not write once another one has
  changed what it read.
- A deadlock on SQLite: there is one lock.

Where it is a constraint of the database that stops a mistake (`settle_without_the_guard`, and
`late_settle_beyond_free_credit`), what is noticed is the consequence: an answer INTERNAL, which is not the model's.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.metering.credit.ledger import owed, spend_limits
from services.metering.credit.ledger import rules as ledger
from services.metering.credit.ledger.batch_state import BatchState
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.ledger.spend import (
    Allowance,
    InheritSpendLimits,
    SetSpendLimits,
    Spend,
    SpendBook,
    SpendRoom,
    spend_id,
)
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    AccountBalance,
    Checkpoint,
    Extend,
    Hold,
    Operation,
    RequestOperation,
    Reserve,
    ReturnPayment,
    Settle,
    Settled,
    Sweep,
    Void,
)
from services.metering.credit.store import batches
from services.metering.credit.store.tables import accounts, holds
from services.metering.store.sets import Lookup, Write, insert_rows, select_all, update_rows

Rule = Callable[[Any, RuleContext], Effect[Any]]
Patch = Callable[[pytest.MonkeyPatch], None]

# A batch that failed is tried again by one of them alone, and does not wait.
ALONE_AFTER_S: Final = 0.3


class Meeting:
    """Two replicas that come to the same place go on together."""

    def __init__(self) -> None:
        self._both = threading.Barrier(2)

    def wait(self) -> None:
        try:
            self._both.wait(ALONE_AFTER_S)
        except threading.BrokenBarrierError:
            self._both.reset()


def extend_as_a_delta(rule: Rule, operation: Extend, context: RuleContext) -> Effect[Any]:
    if context.hold is None:
        return rule(operation, context)
    return rule(replace(operation, total_nanos=context.hold.amount_nanos + operation.total_nanos), context)


def extend_that_shrinks(rule: Rule, operation: Extend, context: RuleContext) -> Effect[Any]:
    effect = rule(operation, context)
    if effect.hold is None or effect.account is None or operation.total_nanos >= effect.hold.amount_nanos:
        return effect
    shrunk_nanos = effect.hold.amount_nanos - operation.total_nanos
    return Effect(
        replace(effect.answer, extended=True, held_nanos=operation.total_nanos),
        replace(effect.account, held_nanos=effect.account.held_nanos - shrunk_nanos),
        replace(effect.hold, amount_nanos=operation.total_nanos),
    )


def checkpoint_that_falls_back(rule: Rule, operation: Checkpoint, context: RuleContext) -> Effect[Any]:
    if context.hold is None or context.hold.state != "held":
        return rule(operation, context)
    return Effect(None, hold=replace(context.hold, completion_tokens=operation.delivered.completion_tokens))


def settle_without_the_guard(rule: Rule, operation: Settle, context: RuleContext) -> Effect[Any]:
    if context.hold is None or context.hold.state != "settled":
        return rule(operation, context)
    return rule(operation, replace(context, hold=replace(context.hold, state="held")))


def late_settle_ignored(rule: Rule, operation: Settle, context: RuleContext) -> Effect[Any]:
    hold = context.hold
    if hold is None or hold.state != "swept":
        return rule(operation, context)
    return Effect(Settled(hold.charged_nanos, hold.loss_nanos), hold=replace(hold, state="settled"))


def late_settle_beyond_free_credit(rule: Rule, operation: Settle, context: RuleContext) -> Effect[Any]:
    if context.hold is None or context.hold.state != "swept":
        return rule(operation, context)
    much_nanos = 10**9
    rich = replace(context.account, balance_nanos=context.account.balance_nanos + much_nanos)
    effect = rule(operation, replace(context, account=rich))
    account: AccountBalance = effect.account or rich
    return replace(effect, account=replace(account, balance_nanos=account.balance_nanos - much_nanos))


def void_of_an_unknown_that_leaves_nothing(rule: Rule, operation: Void, context: RuleContext) -> Effect[Any]:
    return Effect(None) if context.hold is None else rule(operation, context)


def prompt_charged_of_a_request_that_is_over(rule: Rule, operation: Void, context: RuleContext) -> Effect[Any]:
    if context.hold is None or not operation.due.prompt_tokens:
        return rule(operation, context)
    return rule(operation, replace(context, hold=replace(context.hold, state="held")))


def reserve_that_is_not_idempotent(rule: Rule, operation: Reserve, context: RuleContext) -> Effect[Any]:
    again = context.hold is not None and context.hold.state == "held"
    return rule(operation, replace(context, hold=None) if again else context)


def no_claim_on_the_key(rule: Rule, operation: Reserve, context: RuleContext) -> Effect[Any]:
    return rule(replace(operation, claim=None), context)


def one_more_at_once_than_allowed(rule: Rule, operation: Reserve, context: RuleContext) -> Effect[Any]:
    return rule(operation, replace(context, live_holds=context.live_holds - 1))


def sweep_that_frees_the_key(rule: Rule, operation: Reserve, context: RuleContext) -> Effect[Any]:
    swept = context.claimant is not None and context.claimant.state == "swept"
    return rule(operation, replace(context, claim=None, claimant=None) if swept else context)


def sweep_that_trusts_its_list(rule: Rule, operation: Sweep, context: RuleContext) -> Effect[Any]:
    if context.hold is None or context.hold.state == "void":
        return rule(operation, context)
    return rule(operation, replace(context, hold=replace(context.hold, state="held", deadline_at_us=0)))


def _break_rule(
    kind: type[Operation[Any]], broken: Callable[..., Effect[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ledger._RULES, kind, partial(broken, ledger._RULES[kind]))


def return_that_is_forgotten(rule: Rule, operation: ReturnPayment, context: RuleContext) -> Effect[Any]:
    """What is not free is our loss, and stays the customer's credit."""
    effect = rule(operation, context)
    if effect.account is None:
        return effect
    account = replace(effect.account, owed_nanos=context.account.owed_nanos)
    return replace(effect, answer=account, account=account, owed=None)


def hold_that_pays_nothing_of_what_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = owed.collect

    def collect_of_credits(operation: Operation[Any], effect: Effect[Any], context: RuleContext) -> Effect[Any]:
        return effect if isinstance(operation, RequestOperation) else collect(operation, effect, context)

    monkeypatch.setattr(owed, "collect", collect_of_credits)


def repayment_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account owes less, and nothing says why."""
    collect = owed.collect
    monkeypatch.setattr(owed, "collect", lambda *asked: replace(collect(*asked), owed=None))


RULES: Final[dict[str, Patch]] = {
    broken.__name__: partial(_break_rule, kind, broken)
    for kind, broken in (
        (Extend, extend_as_a_delta),
        (Extend, extend_that_shrinks),
        (Checkpoint, checkpoint_that_falls_back),
        (Settle, settle_without_the_guard),
        (Settle, late_settle_ignored),
        (Settle, late_settle_beyond_free_credit),
        (Void, void_of_an_unknown_that_leaves_nothing),
        (Void, prompt_charged_of_a_request_that_is_over),
        (Reserve, reserve_that_is_not_idempotent),
        (Reserve, no_claim_on_the_key),
        (Reserve, one_more_at_once_than_allowed),
        (Reserve, sweep_that_frees_the_key),
        (Sweep, sweep_that_trusts_its_list),
        (ReturnPayment, return_that_is_forgotten),
    )
}
OWED: Final[dict[str, Patch]] = {
    patch.__name__: patch for patch in (hold_that_pays_nothing_of_what_is_owed, repayment_that_is_not_recorded)
}


def past_days_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late charge that counts yesterday meets only the limits of today."""
    monkeypatch.setattr(batches, "read_past_spends", lambda *asked: {})


def days_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Spend, "at", lambda spend, now_us: spend)


def holds_that_no_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "free_nanos", Allowance.unspent_nanos)


def key_whose_account_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    room = SpendBook.room

    def of_the_key(book: SpendBook, account_id: str, key_id: str, hour_us: int | None = None) -> SpendRoom:
        return SpendRoom(tuple(each for each in room(book, account_id, key_id, hour_us).allowances if each.is_of_key))

    monkeypatch.setattr(SpendBook, "room", of_the_key)


def copied_limits(rule: Rule, operation: InheritSpendLimits, context: RuleContext) -> Effect[Any]:
    replaced = context.spends.get(spend_id(operation.account_id, operation.replaced_key_id))
    if spend_id(operation.account_id, operation.key_id) in context.spends or replaced is None:
        return rule(operation, context)
    copy = SetSpendLimits(operation.account_id, operation.key_id, replaced.limits)
    return spend_limits.set_limits(copy, context)


def rotation_that_renews_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that replaces another has the same limits, and counts from zero."""
    _break_rule(InheritSpendLimits, copied_limits, monkeypatch)


LIMITS: Final[dict[str, Patch]] = {
    patch.__name__: patch
    for patch in (
        past_days_without_limits,
        days_that_never_end,
        holds_that_no_limit_counts,
        key_whose_account_has_no_limit,
        rotation_that_renews_limits,
    )
}


def claim_and_effect_in_two_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hold's new state is committed before what it stands for is booked."""
    put = batches._put

    def commit_before_entries(connection: sa.Connection, writes: Sequence[Write]) -> None:
        for write in writes:
            if write[0] is batches._INSERT_ENTRIES:
                connection.exec_driver_sql("COMMIT")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            put(connection, [write])

    monkeypatch.setattr(batches, "_put", commit_before_entries)


def reserve_as_one_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """INSERT .. ON CONFLICT DO NOTHING, with the account's UPDATE beside it."""
    read, put = batches._read, batches._put
    put_if_new = insert_rows(holds, Hold.__struct_fields__, "ON CONFLICT DO NOTHING")

    def read_no_hold(
        connection: sa.Connection, operations: Sequence[Operation[Any]], prices: Prices, life_us: int
    ) -> BatchState:
        found = read(connection, operations, prices, life_us)
        for operation in operations:
            if isinstance(operation, Reserve):
                found.found_holds.pop(operation.request_id, None)
                found.holds.pop(operation.request_id, None)
        return found

    def ignore_conflicts(connection: sa.Connection, writes: Sequence[Write]) -> None:
        for statement, rows in writes:
            if statement is not batches._INSERT_HOLDS:
                put(connection, [(statement, rows)])
            else:
                put_if_new.run(connection, rows)

    monkeypatch.setattr(batches, "_read", read_no_hold)
    monkeypatch.setattr(batches, "_put", ignore_conflicts)


def read_then_write_unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lock, and no update names what it was computed from."""
    read = batches._read
    unlocked = Lookup(select_all(accounts), "account_id")
    any_account = update_rows(accounts, "account_id", batches._ACCOUNT_CHANGES, found=[])
    any_hold = update_rows(holds, "request_id", batches._HOLD_CHANGES, found=[])
    put, meeting = batches._put, Meeting()

    def put_what_was_found_aside(connection: sa.Connection, writes: Sequence[Write]) -> None:
        guards = {any_account: 2, any_hold: 1}
        put(
            connection,
            [(statement, [row[: len(row) - guards.get(statement, 0)] for row in rows]) for statement, rows in writes],
        )

    def read_and_wait(*arguments: Any) -> BatchState:
        found = read(*arguments)
        meeting.wait()
        return found

    monkeypatch.setattr(batches, "_LOCK_ACCOUNTS", unlocked)
    monkeypatch.setattr(batches, "_UPDATE_ACCOUNTS", any_account)
    monkeypatch.setattr(batches, "_UPDATE_HOLDS", any_hold)
    monkeypatch.setattr(batches, "_put", put_what_was_found_aside)
    monkeypatch.setattr(batches, "_read", read_and_wait)


def amount_from_before_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    read, meeting = batches._read, Meeting()

    def read_holds_first(connection: sa.Connection, operations: Sequence[Operation[Any]], *rest: Any) -> BatchState:
        ids = [operation.request_id for operation in operations if isinstance(operation, RequestOperation)]
        stale = [Hold(*row) for row in connection.execute(sa.select(holds).where(holds.c.request_id.in_(ids)))]
        meeting.wait()
        found = read(connection, operations, *rest)
        for hold in stale:
            found.found_holds[hold.request_id] = found.holds[hold.request_id] = hold
        return found

    monkeypatch.setattr(batches, "_read", read_holds_first)


def hold_locked_before_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    read, meeting = batches._read, Meeting()

    def lock_one_by_one(connection: sa.Connection, operations: Sequence[Operation[Any]], *rest: Any) -> BatchState:
        for number, operation in enumerate(operations):
            if isinstance(operation, RequestOperation):
                connection.execute(sa.select(holds).where(holds.c.request_id == operation.request_id).with_for_update())
            if number == 0:
                meeting.wait()
            its_account = accounts.c.account_id == operation.account_id
            connection.execute(sa.select(accounts).where(its_account).with_for_update())
        return read(connection, operations, *rest)

    monkeypatch.setattr(batches, "_read", lock_one_by_one)


def live_holds_counted_without_the_batch_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchState, "_count_live", lambda *holds: None)


def live_holds_counted_before_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    read, count_live, meeting = batches._read, batches._count_live, Meeting()

    def count_first(connection: sa.Connection, operations: Sequence[Operation[Any]], *rest: Any) -> BatchState:
        counted = count_live(connection, operations)
        meeting.wait()
        monkeypatch.setattr(batches, "_count_live", lambda *asked: counted)
        return read(connection, operations, *rest)

    monkeypatch.setattr(batches, "_read", count_first)


STORE: Final[dict[str, Patch]] = {
    patch.__name__: patch
    for patch in (
        claim_and_effect_in_two_transactions,
        reserve_as_one_statement,
        live_holds_counted_without_the_batch_itself,
    )
}
# Each with what it is known by: wrong batches, or a batch that was stopped by a deadlock and had to be tried again.
RACES: Final[dict[str, tuple[Patch, str]]] = {
    patch.__name__: (patch, sign)
    for patch, sign in (
        (read_then_write_unguarded, "nanos off the sum of its live holds"),
        (amount_from_before_the_lock, "nanos off the sum of its live holds"),
        (hold_locked_before_its_account, "batch.failed"),
        (live_holds_counted_before_the_lock, "more than one at once"),
    )
}
