"""Batches operations into transactions: those that arrive during a commit share the next one.

A single operation that a client waits for is written at once. Most of a batch's cost is fixed, so operations that no
client waits for are delayed a little to form batches, and under load all are. Callers only hold a future, so cancelling
one never interrupts a transaction.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from services.chassis.database.database import Database
from services.chassis.database.outages import DatabaseUnavailable, LockTimeout
from services.chassis.errors import LegatoError, Reason, internal_error, unavailable
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, STEP_BOUNDS_S, Histogram
from services.chassis.timing.deadlines import SystemClock
from services.metering.credit.ledger.holds import UnmatchedSettlement
from services.metering.credit.ledger.notices import NO_NOTICES, NoticeRules
from services.metering.credit.locked_accounts import LockedAccounts
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    AnswerT,
    Checkpoint,
    CreditOperation,
    Operation,
    RequestOperation,
    Settle,
    Sweep,
    Void,
)
from services.metering.credit.store.batches import AccountLocked, Outcome, reach, write_operations
from services.metering.credit.unmatched_settlements import UnmatchedSettlements

ReplyT = TypeVar("ReplyT")

BATCH_MOST: Final = 256
# Beyond this the database is too far behind for an answer to be useful.
WAITING_MOST: Final = 10_000
# No client waits for these. The edge retries them until they are acknowledged.
DELAYED: Final[frozenset[type[Operation[object]]]] = frozenset({Settle, Void, Checkpoint})
# Voids are not among these: the client of a failed chat with an idempotency key waits for its key to be free.
DELAYED_LONGER: Final[frozenset[type[Operation[object]]]] = frozenset({Settle, Checkpoint})
# The usual pause between operations that clients wait for is an average in which the last one has this weight; longer
# pauses count as this long.
PAUSE_WEIGHT: Final = 0.25
PAUSE_MOST_S: Final = 1.0

# Lock timeout of a batch's first attempt: many times what another replica holds a row for, but a pause too short to be
# noticed.
LOCK_TIMEOUT_S: Final = 0.25
# The same when some lock is known to be held.
SHORT_LOCK_TIMEOUT_S: Final = 0.02
# How long an operation waits for a locked account: less than its caller's timeout.
LOCK_WAIT_S: Final = 5.0
RETRY_LOCKED_EVERY_S: Final = 0.02
RETRIED_AT_ONCE: Final = 64
# These are repeated anyway.
NEVER_WAIT_FOR_LOCKS: Final[frozenset[type[Operation[object]]]] = frozenset({Checkpoint, Sweep})


class _Waiting(msgspec.Struct, frozen=True):
    operation: Operation[object]
    reply: Callable[[Any], object]
    future: "asyncio.Future[Any]"
    # What the caller is told in place of a refusal.
    refuse: Callable[[LegatoError], LegatoError] | None


class Writer:
    def __init__(
        self,
        database: Database,
        prices: Prices,
        life_s: float,
        log: Log,
        *,
        settlement_delay_s: float = 0.0,
        shared_delay_s: float = 0.0,
        pace_s: float = 0.0,
        lock_wait_s: float = LOCK_WAIT_S,
        notice_rules: NoticeRules = NO_NOTICES,
    ) -> None:
        """Writes to `database`; `life_s` is how long a hold lives before it may be swept. `settlement_delay_s` is how
        long an operation that no client waits for may be delayed, and `shared_delay_s` how long a settlement may be
        while others usually come within that time. After a batch with several that clients waited for, the next begins
        `pace_s` after its start. `lock_wait_s` is how long an operation waits for a locked account."""
        self._database = database
        self.prices = prices
        self._life_us = round(life_s * 1_000_000)
        self.notice_rules = notice_rules
        self._log = log
        # The event loop's clock has a resolution of milliseconds.
        self._clock = SystemClock()
        self._settlement_delay_s = settlement_delay_s
        self._shared_delay_s = shared_delay_s
        # When the last operation came that a client waits for, and the usual pause between them.
        self._last_awaited_s = 0.0
        self._usual_pause_s = PAUSE_MOST_S
        self._pace_s = pace_s
        self._next_at_s = 0.0
        self._waiting: deque[_Waiting] = deque()
        # Whether any queued operation must be written without delay.
        self._must_write_now = False
        self._delay_timer: asyncio.TimerHandle | None = None
        # From when a batch is wanted until none is; and who waits for that.
        self._is_writing = False
        self._ended: asyncio.Future[None] | None = None
        self._rewriting: asyncio.Task[None] | None = None
        self._locked: LockedAccounts[_Waiting] = LockedAccounts(lock_wait_s)
        self._retrying: asyncio.Task[None] | None = None
        self._is_closing = False
        # For metrics: outcomes by kind of operation and reason of refusal, if any; operations per batch, and how long
        # writing it took.
        self.outcomes: defaultdict[tuple[type[Operation[object]], Reason | None], int] = defaultdict(int)
        self.unmatched = 0
        self.unmatched_settlements = UnmatchedSettlements(self._clock)
        self.batch_sizes = Histogram(BATCH_BOUNDS)
        self.write_times_s = Histogram(STEP_BOUNDS_S)

    @property
    def waiting(self) -> int:
        return len(self._waiting) + self._locked.waiting

    @property
    def locked_accounts(self) -> int:
        """The accounts that another session keeps locked while operations wait for them."""
        return self._locked.count

    def submit(
        self,
        operation: Operation[AnswerT],
        reply: Callable[[AnswerT], ReplyT],
        refuse: Callable[[LegatoError], LegatoError] | None = None,
    ) -> "asyncio.Future[ReplyT]":
        """Queues an operation; the future resolves to `reply` of the answer, once that is durable, or fails with
        `refuse` of the error."""
        future: asyncio.Future[ReplyT] = asyncio.get_running_loop().create_future()
        if len(self._waiting) >= WAITING_MOST:
            future.set_exception(unavailable("Metering") if refuse is None else refuse(unavailable("Metering")))
            return future
        waiting = _Waiting(operation, reply, future, refuse)
        if operation.account_id in self._locked.queues:
            # Queued behind the account's waiting operations.
            self._set_aside(waiting)
            return future
        self._waiting.append(waiting)
        if type(operation) not in DELAYED or not self._settlement_delay_s:
            now_s = self._clock.elapsed_s()
            pause_s = min(now_s - self._last_awaited_s, PAUSE_MOST_S)
            self._usual_pause_s += (pause_s - self._usual_pause_s) * PAUSE_WEIGHT
            self._last_awaited_s = now_s
            self._end_delay()
        elif not self._is_writing:
            self._delay_batch(self._delay_of(operation))
        return future

    async def close(self) -> None:
        """Closes the writer once everything submitted is written. Operations that wait for a locked account are
        refused."""
        self._is_closing = True
        self._end_delay()
        while self._is_writing or self._retrying is not None:
            if self._retrying is not None:
                await asyncio.gather(self._retrying)
            else:
                self._ended = asyncio.get_running_loop().create_future()
                await self._ended

    def _end_delay(self) -> None:
        self._must_write_now = True
        if self._delay_timer is not None:
            self._delay_timer.cancel()
            self._delay_timer = None
        if not self._is_writing:
            self._is_writing = True
            # Not now: the operations of one message share a batch.
            asyncio.get_running_loop().call_soon(self._begin_batch)

    def _delay_of(self, operation: Operation[object]) -> float:
        is_company_likely = self._usual_pause_s <= self._shared_delay_s
        return (
            self._shared_delay_s
            if is_company_likely and type(operation) in DELAYED_LONGER
            else self._settlement_delay_s
        )

    def _delay_batch(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends_at_s = loop.time() + delay_s
        if self._delay_timer is not None:
            if self._delay_timer.when() <= ends_at_s:
                return
            self._delay_timer.cancel()
        self._delay_timer = loop.call_at(ends_at_s, self._end_delay)

    def _begin_batch(self) -> None:
        """Writes the next batch, if there is one that must be written now. Callbacks, since nearly every batch is
        written at the first attempt: a task for each would cost as much as a small one."""
        while self._waiting and self._must_write_now:
            began_s = self._clock.elapsed_s()
            if self._next_at_s > began_s:
                pause_s, self._next_at_s = self._next_at_s - began_s, began_s
                asyncio.get_running_loop().call_later(pause_s, self._begin_batch)
                return
            batch = self._next_batch()
            self._must_write_now = bool(self._waiting)
            if batch:
                operations = [waiting.operation for waiting in batch]
                writing = self._commit(operations)
                writing.add_done_callback(partial(self._on_written, batch, operations, began_s))
                return
        self._is_writing = False
        if self._waiting:
            self._delay_batch(min(self._delay_of(waiting.operation) for waiting in self._waiting))
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        awaited, locked = 0, self._locked.queues
        while self._waiting and len(batch) < BATCH_MOST:
            waiting = self._waiting.popleft()
            if waiting.operation.account_id in locked:
                # The lock was discovered after it was queued.
                self._set_aside(waiting)
                continue
            batch.append(waiting)
            awaited += type(waiting.operation) not in DELAYED
        if awaited > 1:
            # Several clients wait for it: others are likely to come.
            self._next_at_s = self._clock.elapsed_s() + self._pace_s
        return batch

    def _on_written(
        self,
        batch: list[_Waiting],
        operations: list[Operation[object]],
        began_s: float,
        writing: "asyncio.Future[list[Outcome]]",
    ) -> None:
        error = writing.exception()
        if error is None:
            reach("committed", operations)
            self._finish(batch, began_s, writing.result())
        else:
            self._rewriting = asyncio.create_task(self._write_again(batch, operations, began_s, error))

    async def _write_again(
        self, batch: list[_Waiting], operations: list[Operation[object]], began_s: float, error: BaseException
    ) -> None:
        """Writes a batch that failed, as far as it can be written."""
        if isinstance(error, LockTimeout):
            outcomes = await self._write_what_is_free(operations)
        else:
            self._log.failure("batch.failed", error, batch_size=len(operations))
            outcomes = await self._write_one_by_one(operations)
        if isinstance(outcomes[-1], DatabaseUnavailable) and not isinstance(outcomes[-1], LockTimeout):
            # Those that came meanwhile would wait for the same timeout, one batch after the other. Edges let them wait.
            while self._waiting:
                batch.append(self._waiting.popleft())
                outcomes.append(outcomes[-1])
        self._finish(batch, began_s, outcomes)

    def _finish(self, batch: list[_Waiting], began_s: float, outcomes: list[Outcome]) -> None:
        """Answers a batch, and begins the next."""
        try:
            self.batch_sizes.observe(len(batch))
            self.write_times_s.observe(self._clock.elapsed_s() - began_s)
            for waiting, outcome in zip(batch, outcomes, strict=True):
                if isinstance(outcome, AccountLocked):
                    self._set_aside(waiting)
                else:
                    self._resolve(waiting, outcome)
        finally:
            self._begin_batch()

    def _set_aside(self, waiting: _Waiting) -> None:
        account_id = waiting.operation.account_id
        if self._locked.waiting >= WAITING_MOST:
            # A separate limit, so that operations of locked accounts do not use up that of others.
            self._resolve(waiting, AccountLocked())
            return
        if account_id not in self._locked.queues:
            self._log.warning("account.locked", account_id=account_id)
        waits = type(waiting.operation) not in NEVER_WAIT_FOR_LOCKS
        self._locked.add(account_id, waiting, self._clock.elapsed_s(), waits=waits)
        if self._retrying is None:
            self._retrying = asyncio.create_task(self._retry_locked())

    async def _retry_locked(self) -> None:
        """Retries operations of locked accounts, until none wait."""
        try:
            while self._locked.waiting:
                await self._retry_first_of_each()
                for waiting in self._locked.take_late(float("inf") if self._is_closing else self._clock.elapsed_s()):
                    self._resolve(waiting, AccountLocked())
                if self._locked.waiting:
                    await asyncio.sleep(RETRY_LOCKED_EVERY_S)
        finally:
            self._retrying = None

    async def _retry_first_of_each(self) -> None:
        tried = self._locked.first_of_each(RETRIED_AT_ONCE)
        outcomes = await self._write_what_is_free([waiting.operation for waiting in tried])
        for waiting, outcome in zip(tried, outcomes, strict=True):
            account_id = waiting.operation.account_id
            if not isinstance(outcome, AccountLocked):
                self._log.info("account.unlocked", account_id=account_id)
                self._resolve(waiting, outcome)
                self._waiting.extendleft(reversed(self._locked.free(account_id)[1:]))
            else:
                self._locked.keep(account_id)
        if self._waiting:
            self._end_delay()

    async def _write_what_is_free(self, operations: Sequence[Operation[object]]) -> list[Outcome]:
        """Writes the operations of unlocked accounts; the others are refused with AccountLocked."""
        try:
            outcomes = await self._commit(operations, skips_locked=True)
            reach("committed", operations)
            return outcomes
        except LockTimeout:
            # No account row is locked, but another row is. It is not known of which account.
            return await self._write_one_by_one(operations)
        except Exception as error:
            self._log.failure("batch.failed", error, batch_size=len(operations))
            return await self._write_one_by_one(operations)

    async def _write_one_by_one(self, operations: Sequence[Operation[object]]) -> list[Outcome]:
        """Writes operations one by one, so that one which cannot be written does not fail the others."""
        outcomes: list[Outcome] = []
        locked_ids: set[str] = set()
        for operation in operations:
            if operation.account_id in locked_ids:
                outcomes.append(AccountLocked())
                continue
            try:
                outcomes += await self._commit([operation], skips_locked=True)
                reach("committed", [operation])
                if isinstance(outcomes[-1], AccountLocked):
                    locked_ids.add(operation.account_id)
            except LockTimeout:
                locked_ids.add(operation.account_id)
                outcomes.append(AccountLocked())
            except DatabaseUnavailable as away:
                # The others would wait for the same timeout, one after the other.
                return outcomes + [away] * (len(operations) - len(outcomes))
            except Exception as error:
                self._log.failure("operation.failed", error, **_id_of(operation))
                outcomes.append(internal_error())
        return outcomes

    def _commit(
        self, operations: Sequence[Operation[object]], *, skips_locked: bool = False
    ) -> "asyncio.Future[list[Outcome]]":
        return self._database.write_unless_locked(
            partial(
                write_operations,
                operations=operations,
                prices=self.prices,
                life_us=self._life_us,
                skips_locked=skips_locked,
                notice_rules=self.notice_rules,
            ),
            SHORT_LOCK_TIMEOUT_S if skips_locked else LOCK_TIMEOUT_S,
        )

    def _resolve(self, waiting: _Waiting, outcome: Outcome) -> None:
        operation = waiting.operation
        refusal = outcome.reason if isinstance(outcome, LegatoError) else None
        self.outcomes[type(operation), refusal] += 1
        if self._log.is_debug:
            self._log.debug(
                "operation.ended",
                name=type(operation).__name__,
                **_id_of(operation),
                account_id=operation.account_id,
                reason=refusal,
            )
        if isinstance(outcome, UnmatchedSettlement):
            self.unmatched += 1
            if isinstance(operation, Settle):
                self.unmatched_settlements.record(operation)
            self._log.failure("settlement.unmatched", outcome, **_id_of(operation), account_id=operation.account_id)
        if waiting.future.done():
            # The caller left; its operation is written all the same.
            return
        if isinstance(outcome, LegatoError):
            waiting.future.set_exception(outcome if waiting.refuse is None else waiting.refuse(outcome))
        else:
            waiting.future.set_result(waiting.reply(outcome))


def _id_of(operation: Operation[object]) -> dict[str, str]:
    """The log field that names the operation."""
    if isinstance(operation, CreditOperation):
        return {"operation_id": operation.operation_id}
    return {"request_id": operation.request_id} if isinstance(operation, RequestOperation) else {}
