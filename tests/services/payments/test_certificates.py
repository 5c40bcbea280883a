"""Payments on TCP: the console calls them, and they call metering, each with its own certificate."""

from pathlib import Path
from typing import Any

import pytest

from protos.metering.v1.payment_booking_pb2 import BookPaymentRequest
from protos.payments.v1 import payments_pb2 as pb
from protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.payments.metering import MeteringClient
from services.payments.servicer import PaymentServicer
from services.payments.stripe_client import StripeClient
from tests.services.payments.conftest import ORIGIN, Metering
from tests.support.certificates import Authority
from tests.support.outside.stripe_server import SECRET_KEY, WEBHOOK_SECRET, StripeServer, sign

ACCOUNT = "acct_aaaaaaaaaaaaaaaa"
FORGED = BookPaymentRequest(account_id=ACCOUNT, payment_id="stripe-forged", paid_nanos=1, reason="Card payment")


async def test_an_event_is_booked_over_mutual_tls_and_nobody_but_payments_may_book(
    stripe: StripeServer, ledger_database: Database, tmp_path: Path, log: Log, patient: None
) -> None:
    authority = Authority(tmp_path / "certificates")
    metering = Metering(ledger_database, "127.0.0.1:0", log, authority.certificates("metering", log))
    await metering.start()
    metering_address = f"127.0.0.1:{metering.port}"
    own = authority.certificates("payments", log)
    client = MeteringClient(metering_address, own, log)
    await client.start()
    await client.open_account(ACCOUNT)
    servicer = PaymentServicer(StripeClient(SECRET_KEY, WEBHOOK_SECRET, stripe.url, log), client, ORIGIN, 5, 1_000, log)
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
        forger = MeteringClient(metering_address, authority.certificates(stranger, log), log)
        await forger.start()
        with pytest.raises(LegatoError) as refused:
            await forger.book(FORGED)
        assert refused.value.reason is Reason.CALLER_NOT_ALLOWED
        await forger.close()
    assert len(metering.entries()) == 1
    await client.close()
    await server.stop(0)
    await metering.stop()
