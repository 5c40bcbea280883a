"""Runs payments (`python -m services.payments`): credit by card, with Stripe Checkout."""

import asyncio
import contextlib
import time

from services.chassis.access_tokens import AccessTokenVerifier
from services.chassis.process import memory
from services.chassis.process.run import run
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.server import RpcServer, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry, show_certificate
from services.payments.metering import MeteringClient
from services.payments.metrics import show_payments
from services.payments.servicer import PaymentServicer
from services.payments.settings import PaymentsSettings
from services.payments.stripe_client import StripeClient

# Longer than Stripe waits for an answer.
STOP_GRACE_S = 10.0


async def main() -> None:
    settings = load(PaymentsSettings)
    settings.require_secrets()
    log = open_log("payments", debug=settings.debug)
    stop = stop_asked()
    registry = new_registry()
    certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
    show_certificate(registry, certificates)
    metering = MeteringClient(settings.metering_address or private_listen(settings.data, "metering"), certificates, log)
    stripe = StripeClient(settings.stripe_secret_key, settings.stripe_webhook_secret, settings.stripe_api_url, log)
    servicer = PaymentServicer(
        stripe, metering, settings.return_origin, settings.payment_least_usd, settings.payment_most_usd, log
    )
    show_payments(servicer.events, registry)
    listen = settings.payments_listen or private_listen(settings.data, "payments")
    server = RpcServer(
        listen,
        [servicer],
        log,
        certificates,
        health_listen=settings.payments_health_listen,
        insecure_tcp=settings.insecure_tcp,
        access=AccessCheck(AccessTokenVerifier(settings.access_token_public_keys), lambda: time.time_ns() // 1000),
        console_listen=settings.payments_console_listen,
        console_role=settings.console_role,
    )
    async with contextlib.AsyncExitStack() as opened:
        await metering.start()
        opened.push_async_callback(metering.close)
        await opened.enter_async_context(
            serve_operations(
                settings.payments_metrics_listen, registry, log, lambda: ["leaving"] if stop.is_set() else []
            )
        )
        await server.start()
        log.info("service.started", listen=listen)
        memory.settle()
        await stop.wait()
        await server.announce_shutdown()
        await asyncio.sleep(settings.drain_delay_s)
        await server.stop(STOP_GRACE_S)
    log.info("service.stopped")


if __name__ == "__main__":
    run("payments", main)
