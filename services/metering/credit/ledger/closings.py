"""The closing of a month: its sums, and the hashes that make it provable. Pure functions of rows.

What is hashed is text: one JSON array for each row, with the columns of its table in their order, and a line feed after
each. An archive of a month is the same text, so that its hash needs no tool of ours. Columns that came after the
first release are the last, and are left out where all of them are 0, so that older rows keep their text.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from services.metering.credit.calendar import CalendarMonth

# Before the first closing.
NO_HASH: Final = "0" * 64
# The last column of an entry in the first release.
LAST_OF_FIRST: Final = "reason"

_encoder: Final = msgspec.json.Encoder()


class Closing(msgspec.Struct, frozen=True):
    """A closed month. Fields are the table's columns."""

    month_us: int
    ends_us: int
    entries: int
    customer_nanos: int
    revenue_nanos: int
    loss_nanos: int
    external_nanos: int
    accounts: int
    # All accounts' at the end of the month.
    balance_nanos: int
    closed_at_us: int
    # Of the month's entries in the order of their ids, and of its accounts in the order of theirs.
    entries_hash: str
    accounts_hash: str
    previous_hash: str
    # Of everything above.
    closing_hash: str = ""

    @property
    def month(self) -> CalendarMonth:
        return CalendarMonth(self.month_us, self.ends_us)

    def expected_hash(self) -> str:
        return sha256(to_line(msgspec.structs.astuple(self)[:-1])).hexdigest()


class AccountClosing(msgspec.Struct, frozen=True):
    """An account in a closed month. Fields are the table's columns."""

    month_us: int
    account_id: str
    # Of the month.
    entries: int = 0
    granted_nanos: int = 0
    adjusted_nanos: int = 0
    charged_nanos: int = 0
    loss_nanos: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    # At the end of the month, and sums since the beginning.
    balance_nanos: int = 0
    total_entries: int = 0
    # Grants and adjustments.
    total_credited_nanos: int = 0
    total_charged_nanos: int = 0


class RetentionState(NamedTuple):
    """The times before which passes have pruned. Fields are the last columns of the table."""

    # Entries recorded before it are gone, or being deleted.
    ledger_pruned_before_us: int
    # Hours before it are summed up by month, or being summed up; and all of them are.
    usage_marked_before_us: int
    usage_summed_before_us: int
    # The entries up to this id are in the sums by model.
    reported_to_id: int


# The values of an entry's columns, in their order.
EntryRow = Sequence[Any]


def to_line(row: Iterable[object]) -> bytes:
    return _encoder.encode(tuple(row)) + b"\n"


class EntriesDigest:
    """The hash and the sums of a month's entries, added in the order of their ids."""

    def __init__(self, columns: Sequence[str]) -> None:
        names = ("customer_nanos", "revenue_nanos", "loss_nanos", "external_nanos")
        self._legs = [columns.index(name) for name in names]
        self._first_columns = columns.index(LAST_OF_FIRST) + 1
        self._has_added = len(columns) > self._first_columns
        self._hash = sha256()
        self.entries = 0
        self.sums = [0, 0, 0, 0]

    def add(self, rows: Sequence[EntryRow]) -> bytes:
        """Adds rows of the table; returns their text."""
        text = _encoder.encode_lines([self._hashed(row) for row in rows] if self._has_added else rows)
        for leg, column in enumerate(self._legs):
            self.sums[leg] += sum([row[column] for row in rows])
        self._hash.update(text)
        self.entries += len(rows)
        return text

    def _hashed(self, row: EntryRow) -> EntryRow:
        return row if any(row[self._first_columns :]) else row[: self._first_columns]

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class AccountsDigest:
    """The hash, the number and the balances of a month's accounts, added in the order of their ids."""

    def __init__(self) -> None:
        self._hash = sha256()
        self.accounts = 0
        self.balance_nanos = 0

    def add(self, account: AccountClosing) -> None:
        self._hash.update(to_line(msgspec.structs.astuple(account)))
        self.accounts += 1
        self.balance_nanos += account.balance_nanos

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def close_account(
    month: CalendarMonth, account_id: str, before: AccountClosing | None, sums: AccountClosing | None
) -> AccountClosing:
    """Returns an account's row: what it had at the end of the month before, and the sums that the month adds."""
    before = before or AccountClosing(month.start_us, account_id)
    sums = sums or AccountClosing(month.start_us, account_id)
    credited_nanos = sums.granted_nanos + sums.adjusted_nanos
    return msgspec.structs.replace(
        sums,
        balance_nanos=before.balance_nanos + credited_nanos - sums.charged_nanos,
        total_entries=before.total_entries + sums.entries,
        total_credited_nanos=before.total_credited_nanos + credited_nanos,
        total_charged_nanos=before.total_charged_nanos + sums.charged_nanos,
    )


def close_month(
    month: CalendarMonth, entries: EntriesDigest, accounts: AccountsDigest, previous: Closing | None, closed_at_us: int
) -> Closing:
    customer_nanos, revenue_nanos, loss_nanos, external_nanos = entries.sums
    closing = Closing(
        month_us=month.start_us,
        ends_us=month.ends_us,
        entries=entries.entries,
        customer_nanos=customer_nanos,
        revenue_nanos=revenue_nanos,
        loss_nanos=loss_nanos,
        external_nanos=external_nanos,
        accounts=accounts.accounts,
        balance_nanos=accounts.balance_nanos,
        closed_at_us=closed_at_us,
        entries_hash=entries.hexdigest(),
        accounts_hash=accounts.hexdigest(),
        previous_hash=NO_HASH if previous is None else previous.closing_hash,
    )
    return msgspec.structs.replace(closing, closing_hash=closing.expected_hash())


def chain_violations(closings: Iterable[Closing]) -> list[str]:
    """Returns what is wrong with a chain; the oldest closing comes first."""
    found: list[str] = []
    previous: Closing | None = None
    for closing in closings:
        month = closing.month
        if closing.closing_hash != closing.expected_hash():
            found.append(f"closing of {month}: changed since it was made")
        if closing.previous_hash != (NO_HASH if previous is None else previous.closing_hash):
            found.append(f"closing of {month}: does not follow from the one before")
        if previous is not None and closing.month_us != previous.ends_us:
            found.append(f"closing of {month}: not of the month after {previous.month}")
        previous = closing
    return found
