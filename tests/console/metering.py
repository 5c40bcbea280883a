"""Metering for the console's tests: its servicers on a SQLite file, whose books are written once and then copied."""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import insert

from services.chassis.database.database import Database
from services.chassis.load.gcra import Rate
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import find_violations
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.notices import NoticeRules
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT, Spend, SpendLimits, spend_id
from services.metering.credit.model_calls import ModelCall, encode_calls
from services.metering.credit.prices import Price
from services.metering.credit.records import HOUR_US, AccountBalance, Api, End, Entry, Hold, Kind, OwedChange
from services.metering.credit.servicers.notices import NoticeThresholdServicer
from services.metering.credit.servicers.payments import PaymentBookingServicer
from services.metering.credit.store import tables
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.store.spends import list_spends, recount
from services.metering.limits.rates import LocalLimiter, RateLimits
from services.metering.limits.servicers.spend_limits import SpendLimitServicer
from services.metering.reports.additions import Addition, Group
from services.metering.reports.servicers.chat_outcomes import ChatOutcomeServicer
from services.metering.reports.servicers.models import ReportServicer
from services.metering.reports.store.days import add_to_days
from services.metering.service import MIGRATIONS
from services.metering.servicers.credit_admin import CreditAdminServicer
from services.metering.servicers.metering import MeteringServicer
from services.metering.statements.servicer import StatementServicer
from services.rules.usage import Usage, counts_of, named
from tests.console.clock import NOW_US, StandingClock
from tests.console.copies import copy_of, restore
from tests.support.servers.migrated import migrated_sqlite

ACCOUNT_ID: Final = "acct_0123456789abcdef"
DOLLAR: Final = 1_000_000_000
LIFE_S: Final = 3660.0
PRICES: Final = {
    name: Price(input_nanos, input_nanos // 10, 4 * input_nanos)
    for name, input_nanos in (("mezzo", 150_000_000), ("forte", 500_000_000), ("fortissimo", 2_500_000_000))
}
FIRST_CREDIT_NANOS: Final = 5 * DOLLAR
FILLED_BALANCE_NANOS: Final = 42_187_654_321
HELD_NANOS: Final = 8_400_000
CHARGES: Final = 64
RULES: Final = NoticeRules(low_balance_nanos=DOLLAR)
_ENDS: Final[tuple[End, ...]] = ("complete", "complete", "complete", "complete", "client_gone", "upstream_cut")
_CLASSES: Final = ("forte", "mezzo", "fortissimo")
_APIS: Final[tuple[Api, ...]] = ("chat", "messages", "responses", "grpc")


def request_id(number: int) -> str:
    return f"{number:08x}" + "5eed" * 6


def before_us(**span: float) -> int:
    return NOW_US - timedelta(**span) // timedelta(microseconds=1)


def credit(amount_nanos: int, reference: str, at_us: int, reason: str | None = None, **values: Any) -> Entry:
    """Returns a grant, or an adjustment, which has a reason."""
    kind: Kind = "grant" if reason is None or amount_nanos > 0 else "adjustment"
    owner = values.pop("account_id", ACCOUNT_ID)
    return Entry(kind, reference, owner, amount_nanos, at_us, external_nanos=-amount_nanos, reason=reason, **values)


def settled(
    number: int, usage: Usage, at_us: int, key_id: str, *, class_id: str = "", end: End = "complete", loss_part: int = 0
) -> Hold:
    """Returns a request that was charged; of its cost, one `loss_part`th was not."""
    class_id = class_id or _CLASSES[number % 3]
    cost_nanos = PRICES[class_id].cost_nanos(usage)
    loss_nanos = cost_nanos // loss_part if loss_part else 0
    return Hold(
        request_id(number), ACCOUNT_ID, key_id, class_id, "settled", price_version=1,
        **msgspec.structs.asdict(usage), charged_nanos=cost_nanos - loss_nanos, loss_nanos=loss_nanos,
        basis="provider", end=end, counted_hour_us=at_us - at_us % HOUR_US,
        reserved_at_us=at_us - 4_000_000, resolved_at_us=at_us, model_calls=_calls(number, usage, cost_nanos),
        first_token_ms=180 + 37 * (number % 11) if number % 5 else None, duration_ms=2_100 + 310 * (number % 13),
        api=_APIS[number % 4],
    )  # fmt: skip


def _calls(number: int, usage: Usage, cost_nanos: int) -> str | None:
    """Returns the call of a request: of every fourth the model is unknown, and of every fourth its cost."""
    if not number % 4:
        return None
    name = "maple-large" if number % 2 else "maple-small"
    paid_nanos = None if name == "maple-small" else cost_nanos * 3 // 4
    return encode_calls([ModelCall("maple", name, paid_nanos, usage)])


def charge_of(hold: Hold) -> Entry:
    assert hold.resolved_at_us is not None
    assert hold.counted_hour_us is not None
    entry = Entry(
        "charge", hold.request_id, hold.account_id, -hold.charged_nanos, hold.resolved_at_us,
        hold.booked_nanos, -hold.loss_nanos, 0, hold.key_id, hold.class_id, hold.price_version, hold.counted_hour_us,
        1, basis=hold.basis, end=hold.end,
    )  # fmt: skip
    return msgspec.structs.replace(entry, **named(hold))


class Metering:
    """The servicers and their books. Tests write books that agree with each other; `audit` says whether they do."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "metering.db"
        self.database = Database(migrated_sqlite(self._file, "metering", MIGRATIONS), "metering")
        with self.database.transaction(writes=True) as connection:
            self.prices = adopt_prices(connection, PRICES)
        self.write([credit(FIRST_CREDIT_NANOS, "grant-2026-08", before_us(days=60))])
        self._new = copy_of(self._file)
        self._filled: sqlite3.Connection | None = None
        self._writer: Writer | None = None

    def servicers(self, log: Log) -> list[object]:
        """Returns new ones, which have read nothing yet."""
        writer = self._one_writer(log)
        limits = RateLimits(Rate(3_000, 2), concurrent_requests=2)
        metering = MeteringServicer(self.database, writer, LocalLimiter(StandingClock()), limits, log)
        return [
            metering,
            ChatOutcomeServicer(self.database),
            CreditAdminServicer(self.database, writer),
            self.spend_limits(log),
            StatementServicer(self.database),
            ReportServicer(self.database),
            NoticeThresholdServicer(self.database, RULES),
        ]

    def spend_limits(self, log: Log) -> SpendLimitServicer:
        return SpendLimitServicer(self.database, self._one_writer(log), log)

    def payment_booking(self, log: Log) -> PaymentBookingServicer:
        return PaymentBookingServicer(self.database, self._one_writer(log))

    def _one_writer(self, log: Log) -> Writer:
        if self._writer is None:
            self._writer = Writer(self.database, self.prices, LIFE_S, log, notice_rules=RULES)
        return self._writer

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer.close()
        self.database.close()

    def reset(self) -> None:
        """Leaves an account with some credit that it has not used."""
        restore(self._file, self._new)

    def fill(self, key_ids: list[str]) -> None:
        """Books a grant, an adjustment and charges by four keys, and limits what may be spent."""
        if self._filled is None:
            self._write_month(key_ids)
            self._filled = copy_of(self._file)
        else:
            restore(self._file, self._filled)

    def _write_month(self, key_ids: list[str]) -> None:
        holds, entries = [], []
        for number in range(CHARGES):
            at_us = before_us(hours=9 * (CHARGES - number) - 7)
            if number == CHARGES // 2:
                entries.append(credit(-DOLLAR // 4, "adjustment-7", at_us, "Agreed in the call on Monday"))
            usage = Usage(22_000 + 740 * number, 10_240 * (number % 3), 1_800 + 220 * number)
            key_id = key_ids[(number + 2) % len(key_ids)]
            end, loss_part = _ENDS[number % len(_ENDS)], 10 if number == 5 else 0
            holds.append(settled(number, usage, at_us, key_id, end=end, loss_part=loss_part))
            entries.append(charge_of(holds[-1]))
        missing_nanos = FILLED_BALANCE_NANOS - FIRST_CREDIT_NANOS - sum(each.customer_nanos for each in entries)
        entries.insert(0, credit(missing_nanos, "grant-2026-10", before_us(days=25)))
        running = Hold(
            request_id(9_000), ACCOUNT_ID, key_ids[0], "forte", "held", HELD_NANOS, 1, before_us(hours=-1),
            1_204, 0, 310, reserved_at_us=before_us(seconds=8),
        )  # fmt: skip
        void = Hold(
            request_id(9_001), ACCOUNT_ID, key_ids[0], "mezzo", "void", price_version=1, end="refused",
            reserved_at_us=before_us(seconds=4), resolved_at_us=NOW_US,
        )  # fmt: skip
        self.write(entries, [*holds, running, void])
        self.fail(key_ids[0], "RATE_LIMITED", 14, days=2)
        self.fail(key_ids[0], "UPSTREAM_FAILED", 3, days=9)
        self.fail(key_ids[1], "CLIENT_GONE", 2, days=9, is_cut=True)
        self.fail(key_ids[1], "REQUEST_INVALID", 1, class_id="", days=1)
        self.limit(WHOLE_ACCOUNT, SpendLimits(day_nanos=1_400_000_000, month_nanos=5_200_000_000))
        self.limit(key_ids[0], SpendLimits(day_nanos=1_200_000_000))
        self.limit(key_ids[1], SpendLimits(month_nanos=5 * DOLLAR))
        assert self.audit() == []

    def write(self, entries: Iterable[Entry], holds: Iterable[Hold] = ()) -> None:
        """Adds entries to the ledger, and what follows from them to the other tables."""
        entries, holds = list(entries), list(holds)
        hours: defaultdict[tuple[Any, ...], list[int]] = defaultdict(lambda: [0] * len(tables.COUNTED))
        nanos: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for entry in entries:
            nanos[entry.account_id][0] += entry.customer_nanos
            if entry.requests:
                counted = (entry.requests, *counts_of(entry), -entry.customer_nanos, -entry.loss_nanos)
                sums = hours[(entry.account_id, entry.hour_us, entry.key_id, entry.class_id)]
                sums[:] = map(sum, zip(sums, counted, strict=True))
        for hold in holds:
            nanos[hold.account_id][1] += hold.amount_nanos
        with self.database.transaction(writes=True) as connection:
            for table, rows in ((tables.ledger, entries), (tables.holds, holds)):
                if rows:
                    connection.execute(sa.insert(table), [msgspec.structs.asdict(row) for row in rows])
            if hours:
                connection.execute(sa.insert(tables.usage_hours).values([(*key, *sums) for key, sums in hours.items()]))
            for account_id, (balance_nanos, held_nanos) in nanos.items():
                new = msgspec.structs.asdict(AccountBalance(account_id))
                connection.execute(insert(tables.accounts).values(new).on_conflict_do_nothing())
                account = tables.accounts.c
                change = {
                    account.balance_nanos: account.balance_nanos + balance_nanos,
                    account.held_nanos: account.held_nanos + held_nanos,
                }
                connection.execute(sa.update(tables.accounts).where(_of(tables.accounts, account_id)).values(change))

    def book(self, amount_nanos: int, reference: str = "test", account_id: str = ACCOUNT_ID) -> None:
        self.write([credit(amount_nanos, f"{reference}-{account_id}", NOW_US, "A test", account_id=account_id)])

    def leave(self, left_nanos: int) -> None:
        """Ends what runs, and leaves so much credit."""
        self.change("DELETE FROM holds WHERE state = 'held'")
        self.change("UPDATE accounts SET held_nanos = 0")
        self.book(left_nanos - self.balance_nanos(), f"all-but-{left_nanos}")

    def owe(self, owed_nanos: int) -> None:
        """Takes all credit, and a payment back that was spent."""
        self.book(-self.balance_nanos(), "spent")
        entry = Entry("adjustment", "stripe-back", ACCOUNT_ID, 0, NOW_US, 0, -owed_nanos, owed_nanos, reason="Returned")
        self.write([entry])
        with self.database.transaction(writes=True) as connection:
            change = OwedChange(entry.request_id, ACCOUNT_ID, owed_nanos, NOW_US)
            connection.execute(sa.insert(tables.owed_changes).values(msgspec.structs.asdict(change)))
            connection.execute(sa.update(tables.accounts).values(owed_nanos=owed_nanos))

    def set_limits(self, limits: SpendLimits) -> None:
        """Replaces the limits of the account."""
        self.limit(WHOLE_ACCOUNT, limits)

    def limit(self, key_id: str, limits: SpendLimits) -> None:
        """Replaces the limits of a key, or of the account."""
        spend = Spend(
            spend_id(ACCOUNT_ID, key_id), ACCOUNT_ID, key_id,
            limits.day_nanos, limits.month_nanos, limits.total_nanos,
        )  # fmt: skip
        with self.database.transaction(writes=True) as connection:
            connection.execute(sa.delete(tables.spends).filter_by(spend_id=spend.spend_id))
            connection.execute(sa.insert(tables.spends).values(msgspec.structs.asdict(spend)))
            connection.execute(sa.update(tables.accounts).values(has_spend_limits=True))
            recount(connection, ACCOUNT_ID)

    def reach_limit(self, key_id: str) -> None:
        """Gives a key a limit of a day that is what it spent today."""
        with self.database.transaction(writes=False) as connection:
            [spent] = [each for each in list_spends(connection, ACCOUNT_ID, [key_id]) if each.key_id == key_id]
        self.limit(key_id, SpendLimits(day_nanos=spent.day_spent_nanos, month_nanos=5 * DOLLAR))

    def add_charges(self, key_ids: Iterable[str]) -> None:
        """Charges each key on the same day, each more than the one before."""
        holds = [
            settled(10_000 + number, Usage(1_000 + number), before_us(days=3), key_id, class_id="mezzo")
            for number, key_id in enumerate(key_ids)
        ]
        self.write(map(charge_of, holds), holds)

    def fail(
        self, key_id: str, reason: str, chats: int, *, class_id: str = "forte", days: float = 0, is_cut: bool = False
    ) -> None:
        """Counts chats that failed, some days ago."""
        at_us = before_us(days=days)
        addition = Addition(
            Group(ACCOUNT_ID, key_id, class_id), at_us, failures={reason: (chats, chats if is_cut else 0)}
        )
        with self.database.transaction(writes=True) as connection:
            add_to_days(connection, [addition])

    def balance_nanos(self, account_id: str = ACCOUNT_ID) -> int:
        return int(self._value(sa.select(tables.accounts.c.balance_nanos).where(_of(tables.accounts, account_id))) or 0)

    def charged_nanos(self) -> int:
        return int(self._value(sa.select(sa.func.sum(tables.usage_hours.c.cost_nanos))))

    def entry_ids(self, account_id: str) -> list[str]:
        """Returns the ids of what was booked, the oldest first."""
        query = sa.select(tables.ledger.c.request_id).where(_of(tables.ledger, account_id))
        with self.database.transaction(writes=False) as connection:
            return list(connection.execute(query.order_by(tables.ledger.c.entry_id)).scalars())

    def low_balance_nanos(self) -> int | None:
        nanos: int | None = self._value(
            sa.select(tables.accounts.c.low_balance_nanos).where(_of(tables.accounts, ACCOUNT_ID))
        )
        return nanos

    def limits(self, key_id: str = WHOLE_ACCOUNT, account_id: str = ACCOUNT_ID) -> SpendLimits | None:
        """Returns the limits of a key, or of the one whose limits it shares; None: it never had any."""
        query = sa.select(tables.spends).where(tables.spends.c.spend_id == sa.bindparam("spend_id"))
        with self.database.transaction(writes=False) as connection:
            found = connection.execute(query, {"spend_id": spend_id(account_id, key_id)}).one_or_none()
            if found is not None and found.shared_spend_id:
                found = connection.execute(query, {"spend_id": found.shared_spend_id}).one()
        return None if found is None else Spend(*found).limits

    def change(self, statement: str, **values: Any) -> None:
        """Writes what no operation would, as a fault of a disk or an operator might."""
        with self.database.transaction(writes=True) as connection:
            connection.execute(sa.text(statement), values)

    def falsify_balance(self, nanos: int) -> None:
        """Adds to the visitor's balance what was never booked."""
        change = "UPDATE accounts SET balance_nanos = balance_nanos + :nanos WHERE account_id = :account_id"
        self.change(change, nanos=nanos, account_id=ACCOUNT_ID)

    def recorded_changes(self) -> list[str]:
        """Returns the changes that auth has not taken over for the audit log."""
        with self.database.transaction(writes=False) as connection:
            return list(connection.scalars(sa.select(tables.account_changes.c.action)))

    def audit(self) -> list[str]:
        with self.database.transaction(writes=False) as connection:
            return find_violations(connection)

    def _value(self, query: "sa.Select[Any]") -> Any:
        with self.database.transaction(writes=False) as connection:
            return connection.execute(query).scalar_one_or_none()


def _of(table: sa.Table, account_id: str) -> sa.ColumnElement[bool]:
    return table.c.account_id == account_id
