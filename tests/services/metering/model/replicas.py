"""Two replicas of metering on one database."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from io import StringIO
from typing import Any, Final

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.clock import NOW_US
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.audit.sweeper import Sweeper
from services.metering.credit.batch import Writer
from services.metering.credit.calendar import next_month_us
from services.metering.credit.ledger.holds import UnmatchedSettlement
from services.metering.credit.ledger.spend import Spend
from services.metering.credit.prices import Price, Prices
from services.metering.credit.records import DAY_US, HOUR_US, Extended, Operation
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.store.tables import retention
from services.metering.months.passes import Retention
from services.metering.months.store.partitions import create_partitions_ahead
from services.metering.settings import MeteringSettings
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.model.records import Refusal
from tests.services.metering.model.rows import Rows, read_rows
from tests.services.metering.samples import LIFE_S, PRICES

DEARER: Final = {"forte": Price(4_000_000, 4_000_000, 20_000_000), "mezzo": Price(150_000, 30_000, 250_000)}
VERSIONS: Final = {1: PRICES, 2: DEARER}
# On PostgreSQL.
CHECKS_PER_AUDIT: Final = 5


class MovingClock:
    """The database's clock, which stands still unless it is moved."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Moves the clock to the first of January 2026, in UTC: a new ledger has no partitions of later months."""
        self.now_us = 1_767_225_600_000_000
        self._begun_us = 0

    def __str__(self) -> str:
        """The expression that databases are asked for."""
        return str(self.now_us)

    def let_days_pass(self, days: int) -> None:
        self.now_us += days * DAY_US + 1

    def begin_month(self) -> None:
        """Moves the clock to noon of the tenth day of the next month: the last one can be closed."""
        self.now_us = next_month_us(self.now_us) + 9 * DAY_US + 12 * HOUR_US

    def go_to_the_end_of_a_month(self) -> None:
        """Moves the clock to noon of the last day but one of some later month, unless it is that still."""
        if self.now_us != self._begun_us:
            month_us = next_month_us(self.now_us)
            before_end_us = 3 * DAY_US // 2
            is_later = month_us - before_end_us > self.now_us
            self._begun_us = self.now_us = (month_us if is_later else next_month_us(month_us)) - before_end_us


# One for all databases: rules find it in place of their database's.
CLOCK: Final = MovingClock()


class Killed(BaseException):
    """Ends a transaction as the death of its process would: nothing is left to handle it."""


class Replica:
    def __init__(self, database_url: str, price_version: int, life_s: float, log: Log) -> None:
        self.database = Database(database_url, "metering")
        self.price_version = price_version
        self.makes_overdue = life_s < 0
        self._life_s = life_s
        self._log = log
        self.restart()

    def restart(self) -> None:
        """Keeps the prices that it reserves by, and nothing of what went before."""
        prices = Prices(self.price_version, {self.price_version: VERSIONS[self.price_version]})
        self.writer = Writer(self.database, prices, self._life_s, self._log)

    def ask(self, operations: Sequence[Operation[Any]]) -> "list[asyncio.Future[Any]]":
        """Sends one batch, if none is under way."""
        return [self.writer.submit(operation, lambda answer: answer) for operation in operations]

    async def sweep(self) -> None:
        """Runs `Sweeper` once."""
        sweeper = Sweeper(self.database, self.writer, 1.0, self._log)
        while await sweeper.sweep():
            pass
        await sweeper.forget()


class Replicas:
    def __init__(self, database_url: str) -> None:
        # The books were found to be wrong, and will be for ever.
        self.spoiled = False
        self._checks = 0
        self._clock = pytest.MonkeyPatch()
        CLOCK.begin()
        for kind in NOW_US:
            self._clock.setitem(NOW_US, kind, CLOCK)
        self._said = StringIO()
        self._log = log = Log("replicas", self._said)
        self._loop = asyncio.new_event_loop()
        # The second reserves by other prices, and gives its holds no time at all: they are overdue at once.
        self.both = (Replica(database_url, 1, LIFE_S, log), Replica(database_url, 2, -1.0, log))
        self.database = self.both[0].database
        self.database.migrate(MIGRATIONS)
        for prices in VERSIONS.values():
            with self.database.transaction(writes=True) as connection:
                adopt_prices(connection, prices)

    def create_partitions(self) -> None:
        """Creates those of PostgreSQL that the time of `CLOCK` needs."""
        if not self.database.is_sqlite:
            with self.database.transaction(writes=True) as connection:
                create_partitions_ahead(connection, CLOCK.now_us, 1)

    def close(self) -> None:
        for replica in self.both:
            replica.database.close()
        self._loop.close()
        self._clock.undo()

    def log_text(self) -> str:
        return self._said.getvalue()

    def ask(self, *queues: Sequence[Operation[Any]]) -> list[list[Any]]:
        """Gives each replica its queue, at once. A refusal is an answer like any other."""
        return self._loop.run_until_complete(self._ask(queues))

    async def _ask(self, queues: Sequence[Sequence[Operation[Any]]]) -> list[list[Any]]:
        asked = [replica.ask(queue) for replica, queue in zip(self.both, queues, strict=True)]
        answers = [await asyncio.gather(*futures, return_exceptions=True) for futures in asked]
        return [[_told(answer) for answer in some] for some in answers]

    def kill(self, number: int, operations: Sequence[Operation[Any]], statements: int) -> list[Any] | None:
        """Kills a replica before it comes to its so many-th statement; None: no call was answered."""
        replica = self.both[number]
        with _killing(replica.database.engine, statements):
            try:
                return self._loop.run_until_complete(self._ask_the_dying(replica, operations))
            finally:
                replica.restart()

    async def _ask_the_dying(self, replica: Replica, operations: Sequence[Operation[Any]]) -> list[Any] | None:
        answers = replica.ask(operations)
        try:
            await replica.writer.close()
        except Killed:
            return None
        return [_told(answer) for answer in await asyncio.gather(*answers, return_exceptions=True)]

    def sweep(self, *numbers: int) -> None:
        """Sweeps at once, each with its list."""
        self._loop.run_until_complete(self._sweep(numbers))

    async def _sweep(self, numbers: Sequence[int]) -> None:
        await asyncio.gather(*(self.both[number].sweep() for number in numbers))

    def retain(self, policy: MeteringSettings, killed_at: str) -> bool:
        """Closes and prunes; returns False if it was killed at a failpoint on the way."""
        with self.database.transaction(writes=True) as connection:
            # The process that had it is dead.
            connection.execute(sa.update(retention).values(lease_until_us=0))
        run = Retention(self.database, policy, self._log, pause_s=0).run_pass()
        with _killed_at(killed_at):
            try:
                self._loop.run_until_complete(run)
            except Killed:
                return False
        return True

    def audit_now_and_then(self) -> list[str]:
        """Audits after every step on SQLite. On PostgreSQL an audit takes longer than all else, and what it reads is
        compared with the model after every step as well."""
        self._checks += 1
        return self.audit() if self.database.is_sqlite or self._checks % CHECKS_PER_AUDIT == 0 else []

    def audit(self) -> list[str]:
        return self._loop.run_until_complete(audit(self.database))

    def rows(self, account_ids: Sequence[str]) -> Rows:
        with self.database.transaction(writes=False) as connection:
            return read_rows(connection, account_ids)


@contextlib.contextmanager
def _killed_at(place: str) -> Iterator[None]:
    def hit(name: str, *deeds: Any) -> None:
        if name == place:
            raise Killed

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(failpoints, "hit", hit)
        yield


def _told(answer: Any) -> Any:
    if isinstance(answer, LegatoError):
        retry_after_s = answer.retry_after_s if answer.reason is Reason.SPEND_LIMIT_EXCEEDED else None
        alarms = isinstance(answer, UnmatchedSettlement)
        return Refusal(answer.reason, alarms, answer.original_request_id, retry_after_s)
    if isinstance(answer, Spend):
        # What was spent is compared with the rows.
        return answer.limits
    if isinstance(answer, Extended):
        # Its reason is that of a refused Reserve.
        return replace(answer, spend_limit=None)
    return answer


@contextlib.contextmanager
def _killing(engine: sa.Engine, statements: int) -> Iterator[None]:
    left = statements

    def count(*event: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(engine, name, count)
    try:
        yield
    finally:
        for name in ("before_cursor_execute", "commit"):
            sa.event.remove(engine, name, count)
