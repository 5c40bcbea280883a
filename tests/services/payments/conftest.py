from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import sqlalchemy as sa

from legato_protos.metering.v1.payment_booking_pb2 import OpenAccountRequest
from legato_protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceStub
from legato_protos.payments.v1 import payments_pb2 as pb
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import find_violations
from services.metering.credit.batch import Writer
from services.metering.credit.servicers.payments import PaymentBookingServicer
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.store.tables import ledger
from services.payments.servicer import PaymentServicer
from services.payments.stripe_client import StripeClient
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import LIFE_S, PRICES
from tests.support.outside.stripe_server import SECRET_KEY, WEBHOOK_SECRET, Signed, StripeServer, sign
from tests.support.servers.migrated import migrated_sqlite

ACCOUNT: Final = "acct_aaaaaaaaaaaaaaaa"
ORIGIN: Final = "http://localhost:8081"
CONTEXT: Final[Any] = None


class Metering:
    """Metering on a socket, which can go away and come back."""

    def __init__(self, database: Database, listen: str, log: Log, certificates: Certificates | None = None) -> None:
        self.database = database
        self.listen = listen
        self._log = log
        self._certificates = certificates

    async def start(self) -> None:
        with self.database.transaction(writes=True) as connection:
            prices = adopt_prices(connection, PRICES)
        self.writer = Writer(self.database, prices, LIFE_S, self._log)
        registration = PaymentBookingServicer(self.database, self.writer)
        self._server = RpcServer(self.listen, [registration], self._log, self._certificates)
        await self._server.start()

    @property
    def port(self) -> int:
        return self._server.port

    async def stop(self) -> None:
        await self._server.stop(0)
        await self.writer.close()

    def entries(self) -> list[tuple[str, str, int, int]]:
        """Returns id, reason, what the customer got and what the service lost, in the order of the ledger."""
        columns = (ledger.c.request_id, ledger.c.reason, ledger.c.customer_nanos, ledger.c.loss_nanos)
        with self.database.transaction(writes=False) as connection:
            assert find_violations(connection) == []
            return [tuple(row) for row in connection.execute(sa.select(*columns).order_by(ledger.c.entry_id))]

    def balance_nanos(self, account_id: str) -> int:
        query = sa.select(sa.func.coalesce(sa.func.sum(ledger.c.customer_nanos), 0))
        with self.database.transaction(writes=False) as connection:
            assert find_violations(connection) == []
            return int(connection.execute(query.where(ledger.c.account_id == account_id)).scalar_one())


class Desk:
    """Payments, between a Stripe and a metering."""

    def __init__(self, stripe: StripeServer, metering: Metering, servicer: PaymentServicer) -> None:
        self.stripe = stripe
        self.metering = metering
        self.servicer = servicer

    async def receive(self, event: Signed) -> bool:
        request = pb.ReceiveEventRequest(payload=event.payload, signature=event.signature)
        return (await self.servicer.ReceiveEvent(request, CONTEXT)).is_booked

    async def tell(self, kind: str, payment_id: str, **fields: Any) -> bool:
        return await self.receive(sign(self.stripe.event(kind, payment_id, **fields)))

    async def refusal(self, event: Signed) -> Reason:
        with pytest.raises(LegatoError) as refused:
            await self.receive(event)
        return refused.value.reason


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    server = StripeServer()
    yield server
    server.close()


@pytest.fixture
def ledger_database(tmp_path: Path) -> Iterator[Database]:
    database = Database(migrated_sqlite(tmp_path / "test.db", "metering", MIGRATIONS), "metering")
    yield database
    database.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer than Stripe would wait."""
    monkeypatch.setattr("services.payments.servicer.METERING_TIMEOUT_S", 60.0)
    monkeypatch.setattr("services.payments.stripe_client.TIMEOUT_S", 60.0)


async def new_servicer(stripe: StripeServer, metering: ReplicaChannel, log: Log) -> PaymentServicer:
    booking: Any = PaymentBookingServiceStub(metering.channel)
    await booking.OpenAccount(OpenAccountRequest(account_id=ACCOUNT), timeout=60)
    client = StripeClient(SECRET_KEY, WEBHOOK_SECRET, stripe.url, log)
    return PaymentServicer(client, booking, ORIGIN, 5, 1_000, log)


@pytest.fixture
async def desk(
    stripe: StripeServer, ledger_database: Database, socket_folder: Path, log: Log, patient: None
) -> AsyncIterator[Desk]:
    metering = Metering(ledger_database, f"unix:{socket_folder}/metering.sock", log)
    await metering.start()
    client = ReplicaChannel("Metering", "metering", metering.listen, None, log)
    await client.start()
    servicer = await new_servicer(stripe, client, log)
    yield Desk(stripe, metering, servicer)
    await client.close()
    await metering.stop()
