"""Runs payments (`python -m services.payments`): credit by card, with Stripe Checkout."""

from legato_protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceStub
from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.settings import load
from services.payments.metrics import show_payments
from services.payments.servicer import PaymentServicer
from services.payments.settings import PaymentsSettings
from services.payments.stripe_client import StripeClient

# Longer than Stripe waits for an answer.
STOP_GRACE_S = 10.0


async def main() -> None:
    settings = load(PaymentsSettings)
    settings.require_secrets()
    async with serving("payments", settings) as process:
        log = process.log
        metering = ReplicaChannel("Metering", "metering", process.address_of("metering"), process.certificates, log)
        booking = PaymentBookingServiceStub(metering.channel)
        stripe = StripeClient(settings.stripe_secret_key, settings.stripe_webhook_secret, settings.stripe_api_url, log)
        servicer = PaymentServicer(
            stripe, booking, settings.return_origin, settings.payment_least_usd, settings.payment_most_usd, log
        )
        show_payments(servicer.events, process.registry)
        await metering.start()
        process.opened.push_async_callback(metering.close)
        await process.serve_rpcs([servicer], grace_s=STOP_GRACE_S)


if __name__ == "__main__":
    run("payments", main)
