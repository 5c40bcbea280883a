"""A real metering on a socket, which can be taken away and brought back, and what an edge keeps beside it."""

from pathlib import Path
from typing import Any

from sqlalchemy import Row, select

from edge.backends.auth import Principal
from edge.backends.exchanges import MeteringReplica
from edge.backends.outage_wait import OutageWait, WaitLimits
from edge.billing.hold import ChatHold
from edge.billing.journal import Journal
from edge.billing.metering import Metering
from services.chassis.database.database import Database
from services.chassis.load.gcra import Rate
from services.chassis.rpc.replicas import Replicas
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import SetSpendLimits, SpendLimits
from services.metering.credit.prices import Price, read_prices
from services.metering.credit.records import Grant
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.store.tables import holds
from services.metering.credit.unpaid_prompts import UnpaidPrompts
from services.metering.limits.rates import LocalLimiter, RateLimits, token_rate
from services.metering.service import MIGRATIONS
from services.metering.servicers.metering import MeteringServicer
from services.metering.settings import MeteringSettings
from tests.support.fakes import FakeClock
from tests.support.servers.migrated import migrated_sqlite

ANN = Principal("acct_ann", "key_ann", frozenset(), None, "forte", None, b"a digest key for tests, 32 bytes")
# Forte's prices: what a million tokens cost, in nano-dollars.
INPUT_NANOS, OUTPUT_NANOS = 1_070_000_000, 3_450_000_000
JOURNAL_SLOTS = 64
# By a clock that stands still.
LIMITS = RateLimits(Rate(1, 3), token_rate(1_000))


class MeteringHarness:
    def __init__(self, socket_folder: Path, tmp_path: Path, log: Log, prices: dict[str, Price] | None = None) -> None:
        """Uses the service's prices unless given some."""
        self._address = f"unix:{socket_folder}/metering.sock"
        self._log = log
        self._database = Database(migrated_sqlite(tmp_path / "metering.db", "metering", MIGRATIONS), "metering")
        with self._database.transaction(writes=True) as connection:
            adopted = adopt_prices(connection, prices or read_prices(MeteringSettings().prices).current)
        self._writer = Writer(self._database, adopted, 3600, log)
        self._limiter = LocalLimiter(FakeClock())
        self.unpaid_prompts = UnpaidPrompts(3, 30_000, 600.0, FakeClock())
        clock = SystemClock()
        self.replicas = Replicas("Metering", self._address, lambda address: MeteringReplica(address, log), log)
        self.waits = OutageWait(WaitLimits(wait_s=5.0))
        self.metering = Metering(self.replicas, clock, log, self.waits)
        self.journal = Journal(tmp_path / "edge.billing.journal", JOURNAL_SLOTS)

    async def open(self) -> None:
        servicer = MeteringServicer(
            self._database, self._writer, self._limiter, LIMITS, self._log, unpaid_prompts=self.unpaid_prompts
        )
        self._server = RpcServer(self._address, [servicer], self._log)
        await self._server.start()

    async def shut(self) -> None:
        await self._server.stop(0)

    async def start(self) -> None:
        await self.open()
        await self.replicas.start()

    async def close(self) -> None:
        await self.metering.settled()
        await self.replicas.close()
        await self.shut()
        await self._writer.close()
        assert await audit(self._database) == []
        self._database.close()
        self.journal.close()

    async def give(self, nanos: int, grant_id: str = "grant") -> None:
        await self._writer.submit(Grant(operation_id=grant_id, account_id=ANN.account_id, amount_nanos=nanos), str)

    async def limit(self, limits: SpendLimits) -> None:
        """Sets the spend limits of the key."""
        await self._writer.submit(SetSpendLimits(ANN.account_id, ANN.key_id, limits), str)

    async def balance(self) -> tuple[int, int]:
        await self.metering.settled()
        [account] = await self._database.read(read_balances, [ANN.account_id])
        return account.balance_nanos, account.held_nanos

    async def read_hold(self, number: int) -> Row[Any]:
        """Reads metering's row about a request."""
        query = select(holds).where(holds.c.request_id == f"{number:032x}")
        return await self._database.read(lambda connection: connection.execute(query).one())

    def hold(self, number: int = 1, journal: Journal | None = None) -> ChatHold:
        return ChatHold(self.metering, journal or self.journal, ANN, f"{number:032x}", "forte")


def cost(prompt_tokens: int, output_tokens: int) -> int:
    return -(-(prompt_tokens * INPUT_NANOS + output_tokens * OUTPUT_NANOS) // 1_000_000)
