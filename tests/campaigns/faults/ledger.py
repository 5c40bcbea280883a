"""The third book: metering's own rows, read from its database."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.auditor import audit
from services.metering.ledger.records import CHARGES, Entry, Hold
from services.metering.ledger.spend import Spend
from services.metering.store.tables import accounts, holds, ledger, spends
from tests.campaigns.faults.chat import Tokens

_ENTRY_COLUMNS = [column for column in ledger.c if column is not ledger.c.entry_id]


class ChargeEver(NamedTuple):
    key_id: str
    hour_us: int
    nanos: int


@dataclass
class Account:
    """One account's outcome in a round."""

    balance_nanos: int = 0
    held_nanos: int = 0
    holds: list[Hold] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    # Its spend limits with their counters, and its charges of all rounds.
    spends: list[Spend] = field(default_factory=list)
    charges_ever: list[ChargeEver] = field(default_factory=list)

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


class LedgerReader:
    """Leaves no connection open between two looks: metering shall find its database as if it were alone."""

    def __init__(self, database_url: str | sa.URL) -> None:
        self._database = Database(database_url, "metering")

    @classmethod
    def of_file(cls, data: Path) -> "LedgerReader":
        """The SQLite file in a service's data folder."""
        return cls(sa.URL.create("sqlite", database=str(data / "metering.db")))

    def accounts_since(self, request_id: str, account_ids: Sequence[str]) -> dict[str, Account]:
        """Reads accounts, holds and entries from this id on: ids sort by time."""
        found = {account_id: Account() for account_id in account_ids}
        with self._look() as connection:
            of_accounts = accounts.c.account_id.in_(account_ids)
            columns = (accounts.c.account_id, accounts.c.balance_nanos, accounts.c.held_nanos)
            for account_id, balance_nanos, held_nanos in connection.execute(sa.select(*columns).where(of_accounts)):
                found[account_id].balance_nanos, found[account_id].held_nanos = balance_nanos, held_nanos
            for row in connection.execute(sa.select(holds).where(holds.c.request_id >= request_id)):
                hold = Hold(*row)
                found.setdefault(hold.account_id, Account()).holds.append(hold)
            request_ids = [hold.request_id for account in found.values() for hold in account.holds]
            for row in connection.execute(sa.select(*_ENTRY_COLUMNS).where(ledger.c.request_id.in_(request_ids))):
                entry = Entry(*row)
                found[entry.account_id].entries.append(entry)
            for row in connection.execute(sa.select(spends).where(spends.c.account_id.in_(account_ids))):
                found[row.account_id].spends.append(Spend(*row))
            charged = (ledger.c.account_id, ledger.c.key_id, ledger.c.hour_us, -ledger.c.customer_nanos)
            of_accounts = ledger.c.account_id.in_(account_ids)
            for account_id, *charge in connection.execute(
                sa.select(*charged).where(of_accounts, ledger.c.kind.in_(CHARGES))
            ):
                found[account_id].charges_ever.append(ChargeEver(*charge))
        return found

    def live_holds(self) -> list[Hold]:
        with self._look() as connection:
            return [Hold(*row) for row in connection.execute(sa.select(holds).where(holds.c.state == "held"))]

    async def audit(self) -> list[str]:
        violations = await audit(self._database)
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
