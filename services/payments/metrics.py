"""Metrics of payments."""

from services.chassis.telemetry.metrics import Registry, counters_of, gauge
from services.payments.metering import MeteringClient
from services.payments.servicer import PaymentServicer

# Each is there from the start, so that an alert sees the first of its kind as an increase.
OUTCOMES = ("booked", "ignored", "failed", "forged")


def show_payments(servicer: PaymentServicer, metering: MeteringClient, registry: Registry) -> None:
    counters_of(
        registry,
        "legato_payment_events",
        "Events of the payment provider, by outcome: booked, ignored, failed (it is sent again) or forged.",
        ["outcome"],
        lambda: [([outcome], servicer.events[outcome]) for outcome in OUTCOMES],
    )
    gauge(
        registry,
        "legato_payments_metering_usable",
        "Metering processes that payments can reach.",
        metering.count_usable,
    )
