"""Payments on TCP: the console calls them, and they call metering, each with its own certificate."""

from pathlib import Path
from typing import Any

import pytest

from legato_protos.metering.v1.payment_booking_pb2 import BookPaymentRequest
from legato_protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceStub
from legato_protos.payments.v1 import payments_pb2 as pb
from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.payments.conftest import ACCOUNT, Metering, new_servicer
from tests.support.certificates import Authority
from tests.support.outside.stripe_server import StripeServer, sign

FORGED = BookPaymentRequest(account_id=ACCOUNT, payment_id="stripe-forged", paid_nanos=1, reason="Card payment")


async def test_an_event_is_booked_over_mutual_tls_and_only_payments_may_book(
    stripe: StripeServer, ledger_database: Database, tmp_path: Path, log: Log, patient: None
) -> None:
    authority = Authority(tmp_path / "certificates")
    metering = Metering(ledger_database, "127.0.0.1:0", log, authority.certificates("metering", log))
    await metering.start()
    metering_address = f"127.0.0.1:{metering.port}"
    own = authority.certificates("payments", log)
    client = ReplicaChannel("Metering", "metering", metering_address, own, log)
    await client.start()
    servicer = await new_servicer(stripe, client, log)
    server = RpcServer("127.0.0.1:0", [servicer], log, own)
    await server.start()
    payment = stripe.new_payment(ACCOUNT, 12_34)
    event = sign(stripe.event("checkout.session.completed", payment))
    request = pb.ReceiveEventRequest(payload=event.payload, signature=event.signature)

    async def receive(identity: str) -> Any:
        tls = authority.certificates(identity, log).current()
        async with open_channel(f"127.0.0.1:{server.port}", tls, "payments") as channel:
            stub: Any = PaymentServiceStub(channel)
            with errors_of("Payments"):
                return await stub.ReceiveEvent(request, timeout=60, wait_for_ready=True)

    for stranger in ("edge", "admin"):
        with pytest.raises(LegatoError) as refused:
            await receive(stranger)
        assert refused.value.reason is Reason.CALLER_NOT_ALLOWED
    assert metering.entries() == []
    for console in ("console", "operator-console"):
        assert (await receive(console)).is_booked
    assert metering.entries() == [(f"stripe-{payment}", "Card payment", 12_340_000_000, 0)]
    for stranger in ("console", "operator-console", "admin"):
        certificates = authority.certificates(stranger, log)
        forger = ReplicaChannel("Metering", "metering", metering_address, certificates, log)
        await forger.start()
        with pytest.raises(LegatoError) as refused:
            await PaymentBookingServiceStub(forger.channel).BookPayment(FORGED, timeout=60)
        assert refused.value.reason is Reason.CALLER_NOT_ALLOWED
        await forger.close()
    assert len(metering.entries()) == 1
    await client.close()
    await server.stop(0)
    await metering.stop()
