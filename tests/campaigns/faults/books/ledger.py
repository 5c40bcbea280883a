"""The third book: metering's own rows, read from its database."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.audit.auditor import audit
from services.metering.credit.ledger.spend import Spend
from services.metering.credit.records import CHARGES, Entry, Hold
from services.metering.credit.store.tables import accounts, holds, ledger, spends
from tests.campaigns.faults.books.closed_books import Archives, find_due, find_violations
from tests.campaigns.faults.chat import Tokens

CREDITS: Final = ("grant", "adjustment")


class ChargeEver(NamedTuple):
    key_id: str
    hour_us: int
    nanos: int


@dataclass
class Account:
    """One account's outcome in a round."""

    balance_nanos: int = 0
    held_nanos: int = 0
    owed_nanos: int = 0
    holds: list[Hold] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    # Its spend limits with their counters, and its charges of all rounds.
    spends: list[Spend] = field(default_factory=list)
    charges_ever: list[ChargeEver] = field(default_factory=list)
    # Its grants and adjustments of all rounds, and what all its entries add up to, archived ones too.
    credits_ever: list[Entry] = field(default_factory=list)
    sum_nanos: int = 0

    @property
    def charges(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind in CHARGES]

    @property
    def losses(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.loss_nanos]

    @property
    def charged(self) -> Tokens | None:
        """All charges of the round together; None where there is none."""
        if not self.charges:
            return None
        return Tokens(
            sum(entry.prompt_tokens for entry in self.charges), sum(entry.completion_tokens for entry in self.charges)
        )

    @property
    def charged_nanos(self) -> int:
        return -sum(entry.customer_nanos for entry in self.charges)

    @property
    def credited_nanos(self) -> int:
        """Returns what was granted and adjusted, in all rounds."""
        return sum(entry.customer_nanos for entry in self.credits_ever)

    def add_ever(self, entry: Entry) -> None:
        self.sum_nanos += entry.customer_nanos
        if entry.kind in CHARGES:
            self.charges_ever.append(ChargeEver(entry.key_id, entry.hour_us, -entry.customer_nanos))
        elif entry.kind in CREDITS:
            self.credits_ever.append(entry)


class LedgerReader:
    """Leaves no connection open between two looks: metering shall find its database as if it were alone."""

    def __init__(self, database_url: str | sa.URL, archives: Archives | None = None) -> None:
        self._database = Database(database_url, "metering")
        self._archives = archives

    @classmethod
    def of_file(cls, data: Path, archives: Archives | None = None) -> "LedgerReader":
        """The SQLite file in a service's data folder."""
        return cls(sa.URL.create("sqlite", database=str(data / "metering.db")), archives)

    def accounts_since(self, request_id: str, account_ids: Sequence[str]) -> dict[str, Account]:
        """Reads accounts, holds and entries from this id on: ids sort by time."""
        found = {account_id: Account() for account_id in account_ids}
        with self._look() as connection:
            of_accounts = accounts.c.account_id.in_(account_ids)
            for row in connection.execute(sa.select(accounts).where(of_accounts)):
                account = found[row.account_id]
                account.balance_nanos, account.held_nanos = row.balance_nanos, row.held_nanos
                account.owed_nanos = row.owed_nanos
            for row in connection.execute(sa.select(holds).where(holds.c.request_id >= request_id)):
                hold = Hold(*row)
                found.setdefault(hold.account_id, Account()).holds.append(hold)
            ever = self._archived(account_ids)
            of_accounts = ledger.c.account_id.in_(account_ids)
            ever |= {row[0]: Entry(*row[1:]) for row in connection.execute(sa.select(ledger).where(of_accounts))}
            for entry in ever.values():
                found[entry.account_id].add_ever(entry)
                if entry.kind not in CREDITS and entry.request_id >= request_id:
                    found[entry.account_id].entries.append(entry)
            for row in connection.execute(sa.select(spends).where(spends.c.account_id.in_(account_ids))):
                found[row.account_id].spends.append(Spend(*row))
        return found

    def _archived(self, account_ids: Sequence[str]) -> dict[int, Entry]:
        """Returns the entries of pruned months, by id."""
        if self._archives is None:
            return {}
        return {row[0]: Entry(*row[1:]) for account_id in account_ids for row in self._archives.entries_of(account_id)}

    def due(self, now_us: int) -> str:
        """Says what is to be closed or pruned at this time, and is not yet."""
        with self._look() as connection:
            return find_due(connection, now_us)

    def live_holds(self) -> list[Hold]:
        with self._look() as connection:
            return [Hold(*row) for row in connection.execute(sa.select(holds).where(holds.c.state == "held"))]

    async def audit(self) -> list[str]:
        if self._archives is None:
            violations = await audit(self._database)
        else:
            violations = await find_violations(self._database, self._archives)
        self._database.engine.dispose()
        return violations

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _look(self) -> Iterator[sa.Connection]:
        try:
            with self._database.transaction(writes=False) as connection:
                yield connection
        finally:
            self._database.engine.dispose()


def first_request_id() -> str:
    """Not above any id that is made from now on."""
    return f"{time.time_ns() // 1_000_000:012x}" + 20 * "0"
