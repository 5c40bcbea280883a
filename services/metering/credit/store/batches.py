"""Runs one batch of operations in one transaction: lock, read, apply the rules in memory, write.

A hold is read and changed only under its account's lock: what was read stays true until the commit. Still, every update
is conditional on the state it was computed from, and must find it.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final, Literal

import sqlalchemy as sa
from msgspec.structs import asdict, astuple, replace

from services.chassis.database.clock import now_us_query, read_now_us
from services.chassis.database.outages import LockTimeout
from services.chassis.errors import ACCOUNT_LOCKED, LegatoError
from services.chassis.process import failpoints
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.batch_state import BatchState, CounterKey, LiveKey
from services.metering.credit.ledger.holds import CLAIM_LIFE_US
from services.metering.credit.ledger.notices import (
    NO_NOTICES,
    AccountNotice,
    NoticeRules,
    find_low_balances,
    find_near_limits,
    reached_limit,
)
from services.metering.credit.ledger.spend import PastPeriod, SetSpendLimits, Spend, SpendBook, SpendLimitRefusal
from services.metering.credit.prices import Prices
from services.metering.credit.records import (
    AccountBalance,
    Claim,
    CreditOperation,
    Entry,
    Hold,
    Operation,
    OwedChange,
    RequestOperation,
    Reserve,
    RestorePayment,
)
from services.metering.credit.store.outbox import ADD_NOTICES, add_changes
from services.metering.credit.store.prices import read_version
from services.metering.credit.store.spends import (
    INSERT_SPENDS,
    UPDATE_SPENDS,
    changed_row,
    read_new_spends,
    read_past_spends,
    read_spends,
    recount,
)
from services.metering.credit.store.tables import (
    COUNTED,
    accounts,
    claims,
    holds,
    ledger,
    owed_changes,
    pruned_credits,
    usage_hours,
)
from services.metering.store.sets import (
    Lookup,
    Query,
    Row,
    Write,
    insert_rows,
    read_all,
    select_all,
    update_rows,
    write_all,
)
from services.rules.usage import COLUMNS

# Read under locks; written, but not committed; committed, but not answered.
Step = Literal["read", "written", "committed"]


def reach(step: Step, operations: Iterable[Operation[object]]) -> None:
    """Hits the failpoint of each kind of operation in the batch, once per batch."""
    if failpoints.watched:
        for kind in dict.fromkeys(type(operation) for operation in operations):
            failpoints.hit(f"metering.{kind.__name__.lower()}.{step}")


# The answer to an operation, or the error that refuses it.
Outcome = object

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
_ACCOUNT_CHANGES: Final = ("balance_nanos", "held_nanos", "has_spend_limits", "owed_nanos")
_UPDATE_ACCOUNTS: Final = update_rows(accounts, "account_id", _ACCOUNT_CHANGES, found=["balance_nanos", "held_nanos"])
_changes_of_account: Final = attrgetter("account_id", *_ACCOUNT_CHANGES)
_INSERT_HOLDS: Final = insert_rows(holds, Hold.__struct_fields__)
# The other columns of a hold never change.
_HOLD_CHANGES: Final = (
    "state", "amount_nanos", *COLUMNS, "charged_nanos", "loss_nanos", "loss_bound_nanos", "basis", "end",
    "counted_hour_us", "resolved_at_us", "routes_version", "model_calls", "first_token_ms", "duration_ms",
)  # fmt: skip
_UPDATE_HOLDS: Final = update_rows(holds, "request_id", _HOLD_CHANGES, found=["state"])
_changes_of: Final = attrgetter("request_id", *_HOLD_CHANGES)
_READ_OWED_CHANGES: Final = Lookup(select_all(owed_changes), "request_id")
_INSERT_OWED_CHANGES: Final = insert_rows(owed_changes, OwedChange.__struct_fields__)
_INSERT_ENTRIES: Final = insert_rows(ledger, Entry.__struct_fields__)
ADD_TO_COUNTERS: Final = insert_rows(
    usage_hours,
    [*CounterKey._fields, *COUNTED],
    "ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE SET "
    + ", ".join(f"{name} = found.{name} + excluded.{name}" for name in COUNTED),
)


class AccountLocked(LockTimeout):
    """The account stayed locked and nothing was written: callers may retry."""

    def __init__(self) -> None:
        super().__init__(Sentence("account_locked"), figures={ACCOUNT_LOCKED: 1})


class ConcurrentChange(Exception):
    """A row had changed since it was read, though its account was locked: the batch must not be written."""


def write_operations(
    connection: sa.Connection,
    operations: Sequence[Operation[object]],
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
    written = operations
    if locked_ids:
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


def _locked_by_others(connection: sa.Connection, operations: Sequence[Operation[object]]) -> frozenset[str]:
    """Returns the accounts that another session has locked, and locks all others."""
    account_ids = {operation.account_id for operation in operations}
    missing_ids = account_ids.difference(row[0] for row in _LOCK_FREE_ACCOUNTS.run(connection, account_ids))
    # Missing rows are new accounts.
    return frozenset(row[0] for row in _FIND_ACCOUNTS.run(connection, missing_ids))


class _Wanted:
    """Holds what the operations of a batch need from the database."""

    def __init__(self, operations: Iterable[Operation[object]]) -> None:
        self.account_ids: set[str] = set()
        self.request_ids: set[str] = set()
        self.credit_ids: list[str] = []
        self.restored_ids: list[str] = []
        self.digests: list[bytes] = []
        self.counts_live = self.sets_limits = False
        # One pass, since most batches have one or two operations.
        for operation in operations:
            self.account_ids.add(operation.account_id)
            if isinstance(operation, RequestOperation):
                self.request_ids.add(operation.request_id)
                if type(operation) is Reserve:
                    self.counts_live |= operation.concurrent_requests is not None
                    if operation.claim is not None:
                        self.digests.append(operation.claim.key_digest)
            elif isinstance(operation, CreditOperation):
                self.credit_ids.append(operation.operation_id)
                if type(operation) is RestorePayment:
                    self.credit_ids.append(operation.return_id)
                    self.restored_ids.append(operation.return_id)
            else:
                self.sets_limits |= isinstance(operation, SetSpendLimits)


def _read(
    connection: sa.Connection, operations: Sequence[Operation[object]], prices: Prices, life_us: int
) -> BatchState:
    wanted = _Wanted(operations)
    locked = _LOCK_ACCOUNTS.of(connection, wanted.account_ids)
    now: Query = now_us_query(connection), ()
    found_claims: list[Claim] = []
    if wanted.digests:
        # The holds of those who own the claims are needed too.
        [account_rows] = read_all(connection, [locked])
        asked = {"account_ids": list(wanted.account_ids), "digests": wanted.digests}
        found_claims = [Claim(*row) for row in connection.execute(_READ_CLAIMS, asked)]
        wanted.request_ids.update(claim.request_id for claim in found_claims)
        hold_rows, [(now_us,)] = read_all(connection, [_READ_HOLDS.of(connection, wanted.request_ids), now])
    else:
        reads = [locked, _READ_HOLDS.of(connection, wanted.request_ids), now]
        account_rows, hold_rows, [(now_us,)] = read_all(connection, reads)
    found_accounts = [AccountBalance(*row) for row in account_rows]
    found_holds = [Hold(*row) for row in hold_rows]
    found_credits = _read_credits(connection, wanted, found_accounts) if wanted.credit_ids else []
    for hold in found_holds:
        if hold.price_version and not prices.has(hold.price_version):
            # Reserved by a replica with another price file.
            prices.add(hold.price_version, read_version(connection, hold.price_version))
    live_holds = _count_live(connection, operations) if wanted.counts_live else None
    owed: list[OwedChange] = []
    if wanted.restored_ids:
        owed = [OwedChange(*row) for row in _READ_OWED_CHANGES.run(connection, wanted.restored_ids)]
    spends: list[Spend] = []
    new_spends: list[Spend] = []
    past_spends: dict[PastPeriod, int] = {}
    if wanted.sets_limits or any(account.has_spend_limits for account in found_accounts):
        spends = read_spends(connection, operations, found_accounts, found_holds)
        new_spends = read_new_spends(connection, operations, spends, now_us)
        if spends or new_spends:
            past_spends = read_past_spends(connection, operations, found_holds, spends, now_us)
    return BatchState(
        accounts=found_accounts,
        holds=found_holds,
        credits=found_credits,
        claims=found_claims,
        prices=prices,
        now_us=now_us,
        life_us=life_us,
        live_holds=live_holds,
        spends=spends,
        new_spends=new_spends,
        past_spends=past_spends,
        owed_changes=owed,
    )


def _read_credits(connection: sa.Connection, wanted: _Wanted, accounts: Iterable[AccountBalance]) -> list[Entry]:
    found = [Entry(*row) for row in _READ_CREDITS.run(connection, wanted.credit_ids)]
    found += [Entry(*row) for row in _READ_PRUNED_CREDITS.run(connection, wanted.credit_ids)]
    missing_ids = wanted.account_ids - {account.account_id for account in accounts}
    if any(entry.account_id in missing_ids for entry in found):
        # The account did not exist to be locked, and was created meanwhile.
        raise ConcurrentChange
    return found


def _count_live(connection: sa.Connection, operations: Sequence[Operation[object]]) -> dict[LiveKey, int]:
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
    if books.claims:
        _put_claims(connection, books)
    writes = _writes_of_holds(books)
    if books.entries:
        writes.append((_INSERT_ENTRIES, list(map(astuple, books.entries))))
        writes.append((ADD_TO_COUNTERS, [(*key, *added) for key, added in books.counted().items()]))
    if books.owed_changes:
        writes.append((_INSERT_OWED_CHANGES, list(map(astuple, books.owed_changes.values()))))
    if books.spend_book.changed_ids:
        writes += _writes_of_spends(books.spend_book)
    writes += _writes_of_accounts(books)
    _put(connection, [write for write in writes if write[1]])
    if books.spend_book.changed_ids:
        for account_id in books.spend_book.miscounted_account_ids():
            recount(connection, account_id)
    if books.changes:
        add_changes(connection, books.changes)


def _writes_of_holds(books: BatchState) -> list[Write]:
    new_holds: list[Row] = []
    changed_holds: list[Row] = []
    for request_id, hold in books.holds.items():
        found = books.found_holds.get(request_id)
        if found is None:
            new_holds.append(astuple(hold))
        elif hold is not found:
            changed_holds.append((*_changes_of(hold), found.state))
    return [(_INSERT_HOLDS, new_holds), (_UPDATE_HOLDS, changed_holds)]


def _writes_of_accounts(books: BatchState) -> list[Write]:
    new_accounts: list[Row] = []
    changed_accounts: list[Row] = []
    for account_id, account in books.accounts.items():
        found = books.found_accounts.get(account_id)
        if found is None:
            new_accounts.append(astuple(account))
        elif account is not found and account != found:
            changed_accounts.append((*_changes_of_account(account), found.balance_nanos, found.held_nanos))
    return [(_INSERT_ACCOUNTS, new_accounts), (_UPDATE_ACCOUNTS, changed_accounts)]


def _put_claims(connection: sa.Connection, books: BatchState) -> None:
    put_claims = [
        asdict(claim) | {"found_request": "" if found is None else found.request_id}
        for key, claim in books.claims.items()
        if (found := books.found_claims.get(key)) is not claim
    ]
    if put_claims and connection.execute(_PUT_CLAIM, put_claims).rowcount != len(put_claims):
        raise ConcurrentChange


def _writes_of_spends(spend_book: SpendBook) -> list[Write]:
    changed = [
        # A counter that is wrong is recounted, and prevents no settlement.
        spend if spend.held_nanos >= 0 else replace(spend, held_nanos=0)
        for each, spend in spend_book.spends.items()
        if each in spend_book.changed_ids
    ]
    new_spends = [astuple(spend) for spend in changed if spend.spend_id not in spend_book.found]
    changed_spends = [
        changed_row(spend_book.found[spend.spend_id], spend) for spend in changed if spend.spend_id in spend_book.found
    ]
    return [(INSERT_SPENDS, new_spends), (UPDATE_SPENDS, changed_spends)]


def _write_notices(
    connection: sa.Connection, books: BatchState, rules: NoticeRules, notices: dict[str, AccountNotice]
) -> None:
    """Adds what the batch has caused to `notices`, and writes those that are new."""
    for notice in find_low_balances(books.found_accounts.values(), books.accounts, rules, books.now_us):
        notices[notice.notice_id] = notice
    if books.has_spends:
        near = find_near_limits(books.spend_book, rules, books.now_us)
        notices |= {notice.notice_id: notice for notice in near}
    if notices:
        ADD_NOTICES.run(connection, [astuple(notice) for notice in notices.values()])


def _put(connection: sa.Connection, writes: Sequence[Write]) -> None:
    for (_, rows), changed in zip(writes, write_all(connection, writes), strict=True):
        if changed != len(rows):
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
    return connection.execute(_FORGET, values).rowcount
