"""Payments for the console's tests: its servicer between a Stripe of ours and the metering of the tests."""

from typing import Any, Final

import grpc.aio

from legato_protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceStub
from services.chassis.rpc.interceptor import ErrorInterceptor
from services.chassis.rpc.methods import Methods
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.telemetry.log import Log
from services.payments.servicer import PaymentServicer
from services.payments.stripe_client import StripeClient
from tests.console.metering import ACCOUNT_ID, Metering
from tests.support.outside.stripe_server import SECRET_KEY, WEBHOOK_SECRET, Signed, StripeServer, sign

ORIGIN: Final = "http://localhost:8081"
PAID: Final = "checkout.session.completed"
# Those of the first checkout of a test.
CHECKOUT_ID: Final = f"cs_test_{1:058d}"
PAYMENT_ID: Final = f"pi_{2:024d}"
PAID_CENTS: Final = 2_500


class Payments:
    def __init__(self, metering: Metering) -> None:
        self.stripe = StripeServer()
        self._metering = metering
        self._booking: Any = None

    async def start(self, listen: str, log: Log) -> None:
        """Opens the socket on which metering books payments, and a channel to it."""
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor(log)])
        self._server.add_generic_rpc_handlers((Methods([self._metering.payment_booking(log)]),))
        self._server.add_insecure_port(listen)
        await self._server.start()
        self._channel = ReplicaChannel("Metering", "metering", listen, None, log)
        await self._channel.start()
        self._booking = PaymentBookingServiceStub(self._channel.channel)

    def servicers(self, log: Log) -> list[object]:
        client = StripeClient(SECRET_KEY, WEBHOOK_SECRET, self.stripe.url, log)
        return [PaymentServicer(client, self._booking, ORIGIN, 5, 1_000, log)]

    async def close(self) -> None:
        await self._channel.close()
        await self._server.stop(None)
        self.stripe.close()

    def reset(self) -> None:
        self.stripe.reset()

    def begin_checkout(self, status: str = "open") -> None:
        """Begins a checkout, and leaves it as it is while nothing is paid."""
        self.stripe.new_payment(ACCOUNT_ID, PAID_CENTS, is_paid=False)
        self.stripe.sessions[CHECKOUT_ID]["status"] = status

    def pay(self) -> None:
        """Pays a checkout, of which a part is refunded."""
        self.stripe.refund(self.stripe.new_payment(ACCOUNT_ID, PAID_CENTS), 500)

    def event(self) -> Signed:
        """Pays a checkout, and returns the event that tells so."""
        return sign(self.stripe.event(PAID, self.stripe.new_payment(ACCOUNT_ID, PAID_CENTS)))
