"""Runs one batch of operations in one transaction: lock, read, apply the rules in memory, write.

A hold is read and changed only under its account's lock: what was read stays true until the commit. Still, every update
is conditional on the state it was computed from, and must find it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final, Generic, Literal, TypeVar

import sqlalchemy as sa
from msgspec.structs import asdict, astuple

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import LockTimeout
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints
from services.metering.ledger.books import BatchState, CounterKey, LiveKey
from services.metering.ledger.holds import CLAIM_LIFE_US
from services.metering.ledger.notices import (
    NO_NOTICES,
    AccountNotice,
    NoticeRules,
    find_low_balances,
    find_near_limits,
    reached_limit,
)
from services.metering.ledger.prices import Prices
from services.metering.ledger.records import (
    AccountBalance,
    Claim,
    CreditOperation,
    Entry,
    Hold,
    Operation,
    RequestOperation,
    Reserve,
    RestorePayment,
)
from services.metering.ledger.spend import SpendLimitRefusal
from services.metering.store.changes import add_changes
from services.metering.store.notices import ADD_NOTICES
from services.metering.store.prices import read_version
from services.metering.store.sets import Lookup, Row, RowsStatement, insert_rows, select_all, update_rows
from services.metering.store.spends import (
    INSERT_SPENDS,
    UPDATE_SPENDS,
    changed_row,
    read_new_spends,
    read_past_spends,
    read_spends,
)
from services.metering.store.tables import accounts, claims, holds, ledger, pruned_credits, usage_hours

# Queues operations of accounts whose rows another session keeps locked, apart from all others.
#
# Another replica locks an account's row for some milliseconds, and is waited for. A longer lock is held by an
# outsider: a person in a database shell, a backup tool, a session that was left open.

ItemT = TypeVar("ItemT")

# Accounts without waiting operations stay known, so that the next operation does not delay others again.
KNOWN_MOST: Final = 10_000


class AccountLocked(LockTimeout):
    """The account stayed locked and nothing was written: callers may retry."""

    def __init__(self) -> None:
        super().__init__("The account is locked right now. Please retry.")


class LockedAccounts(Generic[ItemT]):
    def __init__(self, wait_s: float) -> None:
        """Keeps an item for at most `wait_s`."""
        self._wait_s = wait_s
        # By account: items and their deadlines, in order of arrival.
        self.queues: dict[str, deque[tuple[float, ItemT]]] = {}
        self.waiting = 0

    @property
    def count(self) -> int:
        """The number of accounts with waiting items."""
        return sum(bool(queue) for queue in self.queues.values())

    def add(self, account_id: str, item: ItemT, now_s: float, *, waits: bool = True) -> None:
        """Queues an item; with `waits` false, it is tried once at most, if it is the first."""
        queue = self.queues.get(account_id)
        if queue is None:
            self._forget_idle()
            queue = self.queues[account_id] = deque()
        queue.append((now_s + self._wait_s if waits else now_s, item))
        self.waiting += 1

    def first_of_each(self, most: int) -> list[ItemT]:
        """Returns the first item of each account to retry; if it can be written, so can the rest. It stays queued."""
        return [queue[0][1] for _, queue in islice(self._busy(), most)]

    def keep(self, account_id: str) -> None:
        """Moves a still locked account behind the others."""
        self.queues[account_id] = self.queues.pop(account_id)

    def free(self, account_id: str) -> list[ItemT]:
        """Removes an unlocked account and returns its items."""
        queue = self.queues.pop(account_id)
        self.waiting -= len(queue)
        return [item for _, item in queue]

    def take_late(self, now_s: float) -> list[ItemT]:
        """Removes and returns the items whose deadline has passed."""
        late: list[ItemT] = []
        for account_id, queue in self._busy():
            late += [item for until_s, item in queue if until_s <= now_s]
            self.queues[account_id] = deque(entry for entry in queue if entry[0] > now_s)
        self.waiting -= len(late)
        return late

    def _busy(self) -> Iterator[tuple[str, deque[tuple[float, ItemT]]]]:
        return ((account_id, queue) for account_id, queue in self.queues.items() if queue)

    def _forget_idle(self) -> None:
        if len(self.queues) >= KNOWN_MOST:
            idle = next((account_id for account_id, queue in self.queues.items() if not queue), None)
            if idle is not None:
                del self.queues[idle]


# Read under locks; written, but not committed; committed, but not answered.
Step = Literal["read", "written", "committed"]


def reach(step: Step, operations: Iterable[Operation[Any]]) -> None:
    """Hits the failpoint of each kind of operation in the batch, once per batch."""
    if failpoints.watched:
        for kind in dict.fromkeys(type(operation) for operation in operations):
            failpoints.hit(f"metering.{kind.__name__.lower()}.{step}")


Outcome = Any | LegatoError

# All sessions lock in the same order, so that two batches never deadlock.
_LOCK_ACCOUNTS: Final = Lookup(select_all(accounts), "account_id", "ORDER BY account_id", lock="FOR UPDATE")
_LOCK_FREE_ACCOUNTS: Final = Lookup(
    "SELECT account_id FROM accounts", "account_id", "ORDER BY account_id", lock="FOR UPDATE SKIP LOCKED"
)
_FIND_ACCOUNTS: Final = Lookup("SELECT account_id FROM accounts", "account_id")
_READ_HOLDS: Final = Lookup(select_all(holds), "request_id")
_READ_CREDITS: Final = Lookup(
    select_all(ledger, without=["entry_id"]), "request_id", "AND kind IN ('grant', 'adjustment')"
)
# Ids of entries that were pruned since.
_READ_PRUNED_CREDITS: Final = Lookup(select_all(pruned_credits), "request_id", "AND kind IN ('grant', 'adjustment')")
_READ_CLAIMS: Final = sa.select(claims).where(
    claims.c.account_id.in_(sa.bindparam("account_ids", expanding=True)),
    claims.c.key_digest.in_(sa.bindparam("digests", expanding=True)),
)
# The state is a literal, so that every plan can use the partial index of live holds.
_COUNT_LIVE: Final = Lookup(
    "SELECT account_id, key_id, count(*) FROM holds", "key_id", "AND state = 'held' GROUP BY account_id, key_id"
)
# The claim that was read may have been deleted meanwhile, but not taken by another request.
_PUT_CLAIM: Final = sa.text(
    "INSERT INTO claims AS claim (account_id, key_digest, body_digest, request_id, claimed_at_us)"
    " VALUES (:account_id, :key_digest, :body_digest, :request_id, :claimed_at_us)"
    " ON CONFLICT (account_id, key_digest) DO UPDATE SET body_digest = excluded.body_digest,"
    " request_id = excluded.request_id, claimed_at_us = excluded.claimed_at_us"
    " WHERE claim.request_id = :found_request"
).execution_options(preserve_rowcount=True)
_INSERT_ACCOUNTS: Final = insert_rows(accounts, AccountBalance.__struct_fields__)
_ACCOUNT_CHANGES: Final = ("balance_nanos", "held_nanos", "has_spend_limits")
_UPDATE_ACCOUNTS: Final = update_rows(accounts, "account_id", _ACCOUNT_CHANGES, found=["balance_nanos", "held_nanos"])
_changes_of_account: Final = attrgetter("account_id", *_ACCOUNT_CHANGES)
_INSERT_HOLDS: Final = insert_rows(holds, Hold.__struct_fields__)
# The other columns of a hold never change.
_HOLD_CHANGES: Final = (
    "state", "amount_nanos", "prompt_tokens", "cached_tokens", "completion_tokens", "charged_nanos", "loss_nanos",
    "loss_bound_nanos", "basis", "end", "counted_hour_us", "resolved_at_us",
)  # fmt: skip
_UPDATE_HOLDS: Final = update_rows(holds, "request_id", _HOLD_CHANGES, found=["state"])
_changes_of: Final = attrgetter("request_id", *_HOLD_CHANGES)
_INSERT_ENTRIES: Final = insert_rows(ledger, Entry.__struct_fields__)
COUNTED: Final = (
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "loss_nanos",
)  # fmt: skip
ADD_TO_COUNTERS: Final = insert_rows(
    usage_hours,
    [*CounterKey._fields, *COUNTED],
    "ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE SET "
    + ", ".join(f"{name} = found.{name} + excluded.{name}" for name in COUNTED),
)


class ConcurrentChange(Exception):
    """A row had changed since it was read, though its account was locked: the batch must not be written."""


def write_operations(
    connection: sa.Connection,
    operations: Sequence[Operation[Any]],
    prices: Prices,
    life_us: int,
    *,
    skips_locked: bool = False,
    notice_rules: NoticeRules = NO_NOTICES,
) -> list[Outcome]:
    """Returns the answer to each operation, or the error that refuses it. With `skips_locked` it does not wait for
    locked accounts: their operations are refused with AccountLocked. Notices by `notice_rules` are part of the same
    transaction."""
    locked_ids = _locked_by_others(connection, operations) if skips_locked else frozenset()
    written = [operation for operation in operations if operation.account_id not in locked_ids]
    books = _read(connection, written, prices, life_us)
    reach("read", written)
    outcomes: list[Outcome] = []
    notices: dict[str, AccountNotice] = {}
    for operation in operations:
        if operation.account_id in locked_ids:
            outcomes.append(AccountLocked())
            continue
        try:
            outcomes.append(books.apply(operation))
        except LegatoError as refusal:
            outcomes.append(refusal)
            if type(refusal) is SpendLimitRefusal and type(operation) is Reserve and notice_rules is not NO_NOTICES:
                account_id, key_id = operation.account_id, operation.key_id
                notice = reached_limit(refusal, account_id, key_id, books.spend_book, books.now_us)
                notices[notice.notice_id] = notice
    _write(connection, books)
    if notice_rules is not NO_NOTICES:
        _write_notices(connection, books, notice_rules, notices)
    reach("written", written)
    return outcomes


def _locked_by_others(connection: sa.Connection, operations: Sequence[Operation[Any]]) -> frozenset[str]:
    """Returns the accounts that another session has locked, and locks all others."""
    account_ids = {operation.account_id for operation in operations}
    missing_ids = account_ids.difference(row[0] for row in _LOCK_FREE_ACCOUNTS.run(connection, account_ids))
    # Missing rows are new accounts.
    return frozenset(row[0] for row in _FIND_ACCOUNTS.run(connection, missing_ids))


def _read(connection: sa.Connection, operations: Sequence[Operation[Any]], prices: Prices, life_us: int) -> BatchState:
    account_ids = {operation.account_id for operation in operations}
    credit_ids = [operation.operation_id for operation in operations if isinstance(operation, CreditOperation)]
    credit_ids += [operation.return_id for operation in operations if type(operation) is RestorePayment]
    request_ids = {operation.request_id for operation in operations if isinstance(operation, RequestOperation)}
    digests = [operation.claim.key_digest for operation in operations if type(operation) is Reserve and operation.claim]
    found_accounts = [AccountBalance(*row) for row in _LOCK_ACCOUNTS.run(connection, account_ids)]
    found_claims: list[Claim] = []
    if digests:
        asked = {"account_ids": list(account_ids), "digests": digests}
        found_claims = [Claim(*row) for row in connection.execute(_READ_CLAIMS, asked)]
        request_ids.update(claim.request_id for claim in found_claims)
    found_holds = [Hold(*row) for row in _READ_HOLDS.run(connection, request_ids)]
    found_credits: list[Entry] = []
    if credit_ids:
        found_credits = [Entry(*row) for row in _READ_CREDITS.run(connection, credit_ids)]
        found_credits += [Entry(*row) for row in _READ_PRUNED_CREDITS.run(connection, credit_ids)]
        missing_ids = set(account_ids) - {account.account_id for account in found_accounts}
        if any(entry.account_id in missing_ids for entry in found_credits):
            # The account did not exist to be locked, and was created meanwhile.
            raise ConcurrentChange
    for hold in found_holds:
        if hold.price_version and not prices.has(hold.price_version):
            # Reserved by a replica with another price file.
            prices.add(hold.price_version, read_version(connection, hold.price_version))
    found = found_accounts, found_holds, found_credits, found_claims
    now_us = read_now_us(connection)
    spends = read_spends(connection, operations, found_accounts, found_holds)
    new_spends = read_new_spends(connection, operations, spends, now_us)
    past_spends = None
    if spends or new_spends:
        past_spends = read_past_spends(connection, operations, found_holds, spends, now_us)
    live_holds = _count_live(connection, operations)
    return BatchState(*found, prices, now_us, life_us, live_holds, spends, new_spends, past_spends)


def _count_live(connection: sa.Connection, operations: Sequence[Operation[Any]]) -> dict[LiveKey, int]:
    """Counts the live holds of keys with a limit. Their accounts are locked: none is added meanwhile."""
    counts = {
        LiveKey(operation.account_id, operation.key_id): 0
        for operation in operations
        if type(operation) is Reserve and operation.concurrent_requests is not None
    }
    if counts:
        for account_id, key_id, count in _COUNT_LIVE.run(connection, {key.key_id for key in counts}):
            counts[LiveKey(account_id, key_id)] = count
    return counts


def _write(connection: sa.Connection, books: BatchState) -> None:
    new_holds = [astuple(hold) for new_id, hold in books.holds.items() if new_id not in books.found_holds]
    _put(connection, _INSERT_HOLDS, new_holds)
    changed_holds = [
        (*_changes_of(hold), found.state)
        for found in books.found_holds.values()
        if (hold := books.holds[found.request_id]) is not found
    ]
    _put(connection, _UPDATE_HOLDS, changed_holds)
    put_claims = [
        asdict(claim) | {"found_request": "" if found is None else found.request_id}
        for key, claim in books.claims.items()
        if (found := books.found_claims.get(key)) is not claim
    ]
    if put_claims and connection.execute(_PUT_CLAIM, put_claims).rowcount != len(put_claims):
        raise ConcurrentChange
    _put(connection, _INSERT_ENTRIES, [astuple(entry) for entry in books.entries])
    _put(connection, ADD_TO_COUNTERS, [(*key, *added) for key, added in books.counted().items()])
    spend_book = books.spend_book
    changed = [spend for each, spend in spend_book.spends.items() if each in spend_book.changed_ids]
    new_spends = [astuple(spend) for spend in changed if spend.spend_id not in spend_book.found]
    _put(connection, INSERT_SPENDS, new_spends)
    changed_spends = [
        changed_row(spend_book.found[spend.spend_id], spend) for spend in changed if spend.spend_id in spend_book.found
    ]
    _put(connection, UPDATE_SPENDS, changed_spends)
    new_accounts = [
        astuple(account) for new_id, account in books.accounts.items() if new_id not in books.found_accounts
    ]
    _put(connection, _INSERT_ACCOUNTS, new_accounts)
    changed_accounts = [
        (*_changes_of_account(account), found.balance_nanos, found.held_nanos)
        for found in books.found_accounts.values()
        if (account := books.accounts[found.account_id]) != found
    ]
    _put(connection, _UPDATE_ACCOUNTS, changed_accounts)
    if books.changes:
        add_changes(connection, books.changes)


def _write_notices(
    connection: sa.Connection, books: BatchState, rules: NoticeRules, notices: dict[str, AccountNotice]
) -> None:
    """Adds what the batch has caused to `notices`, and writes those that are new."""
    found = find_low_balances(books.found_accounts.values(), books.accounts, rules, books.now_us)
    notices |= {notice.notice_id: notice for notice in found}
    if books.spend_book:
        near = find_near_limits(books.spend_book, rules, books.now_us)
        notices |= {notice.notice_id: notice for notice in near}
    if notices:
        ADD_NOTICES.run(connection, [astuple(notice) for notice in notices.values()])


def _put(connection: sa.Connection, statement: RowsStatement, rows: list[Row]) -> None:
    if rows and statement.run(connection, rows) != len(rows):
        raise ConcurrentChange


_OLDEST: Final = (
    sa.select(claims.c.account_id, claims.c.key_digest)
    .where(claims.c.claimed_at_us < sa.bindparam("claimed_before_us"))
    .order_by(claims.c.claimed_at_us)
    .limit(sa.bindparam("most"))
    # Rows that a batch is taking over are skipped: waiting for them might deadlock with it.
    .with_for_update(skip_locked=True)
)
# Built once: SQLAlchemy's tuple is a reference cycle, which would leave work for the garbage collector every second.
_FORGET: Final = sa.delete(claims).where(sa.tuple_(claims.c.account_id, claims.c.key_digest).in_(_OLDEST))


def forget_claims(connection: sa.Connection, most: int) -> int:
    """Deletes the oldest first; returns how many."""
    values = {"claimed_before_us": read_now_us(connection) - CLAIM_LIFE_US, "most": most}
    forgotten: sa.CursorResult[Any] = connection.execute(_FORGET, values)
    return forgotten.rowcount
