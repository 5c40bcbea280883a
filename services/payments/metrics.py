"""Metrics of payments."""

from collections.abc import Mapping

from services.chassis.telemetry.metrics import Registry

# Each is there from the start, so that an alert sees the first of its kind as an increase.
OUTCOMES = ("booked", "ignored", "failed", "forged")


def show_payments(events: Mapping[str, int], registry: Registry) -> None:
    """Registers the metrics; `events` are counted by outcome."""
    registry.counter(
        "legato_payment_events",
        "Events of the payment provider, by outcome: booked, ignored, failed (it is sent again) or forged.",
        lambda: {outcome: events.get(outcome, 0) for outcome in OUTCOMES},
        "outcome",
    )
