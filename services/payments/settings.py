"""The settings of payments, each read from `LEGATO_` and its name in capitals."""

from functools import partial
from typing import Annotated

import msgspec

from services.chassis.access_tokens import check_public_keys
from services.chassis.process.settings import ServiceSettings
from services.chassis.settings import (
    HttpAddress,
    OperationsListen,
    SettingsError,
    check_all,
)

# Stripe refuses less than half a dollar, and more than 999,999.99 in one payment.
_Dollars = Annotated[int, msgspec.Meta(ge=1, le=999_999)]


class PaymentsSettings(ServiceSettings, frozen=True, kw_only=True):
    # The secrets of Stripe; no other process has them. Without them, the process is not started.
    stripe_secret_key: str = ""
    stripe_webhook_secret: str = ""
    stripe_api_url: HttpAddress = "https://api.stripe.com"
    # What one payment may be.
    payment_least_usd: _Dollars = 5
    payment_most_usd: _Dollars = 1_000
    # The origins of the console, comma-separated: a payer returns to the first.
    console_url: str = "http://localhost:8081"
    # Empty: sockets in `data`.
    payments_listen: str = ""
    metering_address: str = ""
    # Address of health checks, for clients without a certificate.
    payments_health_listen: str = ""
    # Address of the metrics for Prometheus, over HTTP; empty: not served.
    payments_metrics_listen: OperationsListen = ""
    # A unix socket for a console.
    payments_console_listen: str = ""

    def check(self) -> None:
        check_all(partial(check_public_keys, self.access_token_public_keys), self._check_secrets, self._check_amounts)

    def _check_secrets(self) -> None:
        if bool(self.stripe_secret_key) != bool(self.stripe_webhook_secret):
            raise SettingsError("LEGATO_STRIPE_SECRET_KEY and LEGATO_STRIPE_WEBHOOK_SECRET need each other")

    def require_secrets(self) -> None:
        if not self.stripe_secret_key:
            raise SettingsError("LEGATO_STRIPE_SECRET_KEY is not set")

    def _check_amounts(self) -> None:
        if self.payment_least_usd > self.payment_most_usd:
            raise SettingsError("LEGATO_PAYMENT_LEAST_USD must not exceed LEGATO_PAYMENT_MOST_USD")

    @property
    def return_origin(self) -> str:
        return self.console_url.split(",")[0].strip().rstrip("/")
