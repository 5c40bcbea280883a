"""One batch of operations in one transaction: lock, read, apply the rules in memory, write.

Whoever changes a hold has locked its account first, and reads the hold only then: what was read stays true until the
commit. Every update names the state it was computed from all the same, and must find it.
"""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from msgspec.structs import asdict

from services.chassis.errors import LegatoError
from services.metering.books import CREDIT_KINDS, Books, CounterKey, LiveKey
from services.metering.operations import Operation, Reserve
from services.metering.places import reach
from services.metering.prices import Prices
from services.metering.records import Account, Claim, Entry, Hold
from services.metering.store.clock import read_now_us
from services.metering.store.price_versions import read_version
from services.metering.store.sets import RowsStatement, among, insert_rows, to_json, update_rows
from services.metering.store.tables import accounts, claims, holds, ledger, usage_hours

Outcome = Any | LegatoError

_IDS: Final = sa.bindparam("ids", type_=sa.Text)
_LOCK_ACCOUNTS: Final = (
    sa.select(accounts)
    .where(among(accounts.c.account_id, _IDS))
    # In one order for everybody: two batches never wait for each other.
    .order_by(accounts.c.account_id)
    .with_for_update()
)
_READ_HOLDS: Final = sa.select(holds).where(among(holds.c.request_id, _IDS))
_READ_CREDITS: Final = sa.select(*[column for column in ledger.c if column is not ledger.c.entry_id]).where(
    ledger.c.kind.in_(tuple(CREDIT_KINDS.values())), among(ledger.c.request_id, _IDS)
)
_READ_CLAIMS: Final = sa.select(claims).where(
    among(claims.c.account_id, _IDS),
    claims.c.key_digest.in_(sa.bindparam("digests", expanding=True)),
)
# The state is not a parameter, so that the index of live holds is found whatever plan is made.
_COUNT_LIVE: Final = (
    sa.select(holds.c.account_id, holds.c.key_id, sa.func.count())
    .where(holds.c.state == sa.literal_column("'held'"), among(holds.c.key_id, _IDS))
    .group_by(holds.c.account_id, holds.c.key_id)
)
# A claim that was found may meanwhile have been forgotten, but no other request may have got it.
_PUT_CLAIM: Final = sa.text(
    "INSERT INTO claims AS claim (account_id, key_digest, body_digest, request_id, claimed_at_us)"
    " VALUES (:account_id, :key_digest, :body_digest, :request_id, :claimed_at_us)"
    " ON CONFLICT (account_id, key_digest) DO UPDATE SET body_digest = excluded.body_digest,"
    " request_id = excluded.request_id, claimed_at_us = excluded.claimed_at_us"
    " WHERE claim.request_id = :found_request"
).execution_options(preserve_rowcount=True)
_INSERT_ACCOUNTS: Final = insert_rows(accounts, Account.__struct_fields__)
_UPDATE_ACCOUNTS: Final = update_rows(
    accounts, "account_id", ["balance_nanos", "held_nanos"], found=["balance_nanos", "held_nanos"]
)
_INSERT_HOLDS: Final = insert_rows(holds, Hold.__struct_fields__)
# What a hold was made for never changes.
_HOLD_CHANGES: Final = (
    "state", "amount_nanos", "prompt_tokens", "cached_tokens", "completion_tokens", "charged_nanos", "loss_nanos",
    "loss_bound_nanos", "basis", "end", "counted_hour_us", "resolved_at_us",
)  # fmt: skip
_UPDATE_HOLDS: Final = update_rows(holds, "request_id", _HOLD_CHANGES, found=["state"])
_INSERT_ENTRIES: Final = insert_rows(ledger, Entry.__struct_fields__)
_COUNTED: Final = (
    "requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos", "loss_nanos",
)  # fmt: skip
_ADD_TO_COUNTERS: Final = insert_rows(
    usage_hours,
    [*CounterKey._fields, *_COUNTED],
    "ON CONFLICT (account_id, hour_us, key_id, class_id) DO UPDATE SET "
    + ", ".join(f"{name} = found.{name} + excluded.{name}" for name in _COUNTED),
)


class BooksMoved(Exception):
    """A row was not as it had been read, though its account was locked: nothing of the batch may be written."""


def keep_books(
    connection: sa.Connection, operations: Sequence[Operation[Any]], prices: Prices, life_us: int
) -> list[Outcome]:
    """The answer to each operation, or the error that refuses it."""
    books = _read(connection, operations, prices, life_us)
    reach("read", operations)
    outcomes: list[Outcome] = []
    for operation in operations:
        try:
            outcomes.append(books.apply(operation))
        except LegatoError as refusal:
            outcomes.append(refusal)
    _write(connection, books)
    reach("written", operations)
    return outcomes


def _read(connection: sa.Connection, operations: Sequence[Operation[Any]], prices: Prices, life_us: int) -> Books:
    account_ids = {operation.account_id for operation in operations}
    credit_ids = [operation.request_id for operation in operations if type(operation) in CREDIT_KINDS]
    request_ids = {operation.request_id for operation in operations if type(operation) not in CREDIT_KINDS}
    digests = [operation.claim.key_digest for operation in operations if type(operation) is Reserve and operation.claim]
    found_accounts = [Account(*row) for row in connection.execute(_LOCK_ACCOUNTS, {"ids": to_json(account_ids)})]
    found_claims: list[Claim] = []
    if digests:
        asked = {"ids": to_json(account_ids), "digests": digests}
        found_claims = [Claim(*row) for row in connection.execute(_READ_CLAIMS, asked)]
        request_ids.update(claim.request_id for claim in found_claims)
    found_holds = [Hold(*row) for row in connection.execute(_READ_HOLDS, {"ids": to_json(request_ids)})]
    found_credits: list[Entry] = []
    if credit_ids:
        found_credits = [Entry(*row) for row in connection.execute(_READ_CREDITS, {"ids": to_json(credit_ids)})]
        missing_ids = set(account_ids) - {account.account_id for account in found_accounts}
        if any(entry.account_id in missing_ids for entry in found_credits):
            # An account that was not there to be locked has been made in the meantime.
            raise BooksMoved
    for hold in found_holds:
        if hold.price_version and not prices.has(hold.price_version):
            # A replica with another price file reserved it.
            prices.add(hold.price_version, read_version(connection, hold.price_version))
    found = found_accounts, found_holds, found_credits, found_claims
    return Books(*found, prices, read_now_us(connection), life_us, _count_live(connection, operations))


def _count_live(connection: sa.Connection, operations: Sequence[Operation[Any]]) -> dict[LiveKey, int]:
    """Of the keys whose reserves are limited. Their accounts are locked: none is added meanwhile."""
    counts = {
        LiveKey(operation.account_id, operation.key_id): 0
        for operation in operations
        if type(operation) is Reserve and operation.concurrent_requests is not None
    }
    if counts:
        for *key, count in connection.execute(_COUNT_LIVE, {"ids": to_json({key.key_id for key in counts})}):
            counts[LiveKey(*key)] = count
    return counts


def _write(connection: sa.Connection, books: Books) -> None:
    new_holds = [asdict(books.holds[new_id]) for new_id in books.holds.keys() - books.found_holds.keys()]
    _put(connection, _INSERT_HOLDS, new_holds)
    changed_holds = [
        asdict(books.holds[found.request_id]) | {"found_state": found.state}
        for found in books.found_holds.values()
        if books.holds[found.request_id] is not found
    ]
    _put(connection, _UPDATE_HOLDS, changed_holds)
    put_claims = [
        asdict(claim) | {"found_request": "" if found is None else found.request_id}
        for key, claim in books.claims.items()
        if (found := books.found_claims.get(key)) is not claim
    ]
    if put_claims and connection.execute(_PUT_CLAIM, put_claims).rowcount != len(put_claims):
        raise BooksMoved
    _put(connection, _INSERT_ENTRIES, [asdict(entry) for entry in books.entries])
    counters = [key._asdict() | dict(zip(_COUNTED, added, strict=True)) for key, added in books.counted().items()]
    _put(connection, _ADD_TO_COUNTERS, counters)
    new_accounts = [asdict(books.accounts[new_id]) for new_id in books.accounts.keys() - books.found_accounts.keys()]
    _put(connection, _INSERT_ACCOUNTS, new_accounts)
    changed_accounts = [
        asdict(books.accounts[found.account_id])
        | {"found_balance_nanos": found.balance_nanos, "found_held_nanos": found.held_nanos}
        for found in books.found_accounts.values()
        if books.accounts[found.account_id] != found
    ]
    _put(connection, _UPDATE_ACCOUNTS, changed_accounts)


def _put(connection: sa.Connection, statement: RowsStatement, rows: list[dict[str, Any]]) -> None:
    if rows and statement.run(connection, rows) != len(rows):
        raise BooksMoved
