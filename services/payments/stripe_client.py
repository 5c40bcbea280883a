"""Talks to Stripe, with its own library. No other module imports it.

The library is synchronous here: each call runs in a thread, as payments are few. Nothing that Stripe says of a card or
of its holder is read, and what the library logs or raises never reaches a log as text.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import stripe

from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.payments.rules import CURRENCY, Payment, Return

ResultT = TypeVar("ResultT")

# The account that a payment is for. We alone can write it: it takes the secret key.
ACCOUNT_FIELD: Final = "legato_account_id"
TIMEOUT_S: Final = 8.0
# A signature older than that is refused: a recorded event cannot be sent again.
TOLERANCE_S: Final = 300
PAGE_SIZE: Final = 100
# A payment is made up to a day after its checkout was created; what becomes of a refund or a dispute takes months.
CHECKOUT_LIFE_S: Final = 24 * 3600
RETURNS_CHANGE_FOR_S: Final = 180 * 24 * 3600


class Checkout(msgspec.Struct, frozen=True):
    id: str
    account_id: str
    cents: int
    # `open`, `complete` or `expired`.
    status: str
    is_paid: bool
    url: str = ""
    payment_id: str | None = None


class StripeClient:
    def __init__(self, secret_key: str, webhook_secret: str, api_url: str, log: Log) -> None:
        self._webhook_secret = webhook_secret
        self._log = log
        self._api = stripe.StripeClient(
            secret_key,
            base_addresses={"api": api_url.rstrip("/")},
            http_client=stripe.RequestsClient(timeout=TIMEOUT_S),
            max_network_retries=1,
        ).v1

    def is_signed(self, payload: bytes, signature: str) -> bool:
        """Returns whether Stripe has signed it, lately."""
        if not signature.isascii():
            # The library compares ASCII alone, and fails for the rest.
            return False
        try:
            text = payload.decode()
            stripe.WebhookSignature.verify_header(text, signature, self._webhook_secret, TOLERANCE_S)
        except (stripe.SignatureVerificationError, UnicodeDecodeError):
            return False
        return True

    async def create_checkout(self, account_id: str, cents: int, return_origin: str, idempotency_key: str) -> Checkout:
        ours = {ACCOUNT_FIELD: account_id}
        params: Any = {
            "mode": "payment",
            "client_reference_id": account_id,
            "metadata": ours,
            "payment_intent_data": {"metadata": ours, "description": "Legato credit"},
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {
                        "currency": CURRENCY,
                        "unit_amount": cents,
                        "product_data": {"name": "Legato credit"},
                    },
                }
            ],
            "payment_method_types": ["card"],
            # The payer sees the amount in dollars, as it is booked.
            "adaptive_pricing": {"enabled": False},
            "success_url": f"{return_origin}/credit/payment?checkout={{CHECKOUT_SESSION_ID}}",
            "cancel_url": f"{return_origin}/credit/add?cancelled=1",
        }
        options: Any = {"idempotency_key": idempotency_key}
        return _checkout(await self._ask(lambda: self._api.checkout.sessions.create(params, options)))

    async def read_checkout(self, checkout_id: str) -> Checkout:
        return _checkout(await self._ask(lambda: self._api.checkout.sessions.retrieve(checkout_id)))

    async def read_payment(self, payment_id: str) -> Payment | None:
        """Returns a payment as it is now; None if it is not one of ours, or nothing was paid."""
        intent = await self._ask(lambda: self._api.payment_intents.retrieve(payment_id))
        account_id = _account_of(intent)
        if not account_id or not intent.amount_received:
            return None
        asked: Any = {"payment_intent": payment_id, "limit": PAGE_SIZE}
        refunds = await self._ask(lambda: list(self._api.refunds.list(asked).auto_paging_iter()))
        disputes = await self._ask(lambda: list(self._api.disputes.list(asked).auto_paging_iter()))
        return Payment(
            intent.id,
            account_id,
            intent.amount_received,
            intent.currency,
            *(msgspec.convert(found, tuple[Return, ...], from_attributes=True) for found in (refunds, disputes)),
        )

    async def list_payments(self, start_s: int) -> list[Payment]:
        """Returns payments of ours that were made since a time, without what was returned of them; and those of which
        something was returned, of which only the ids are known."""
        made = await self._list(self._api.payment_intents.list, start_s - CHECKOUT_LIFE_S)
        returned = [
            *await self._list(self._api.refunds.list, start_s - RETURNS_CHANGE_FOR_S),
            *await self._list(self._api.disputes.list, start_s - RETURNS_CHANGE_FOR_S),
        ]
        found = {
            intent.id: Payment(intent.id, _account_of(intent), intent.amount_received, intent.currency)
            for intent in made
            if _account_of(intent) and intent.amount_received
        }
        for each in returned:
            if each.payment_intent and each.payment_intent not in found:
                found[each.payment_intent] = Payment(each.payment_intent, "", 0, CURRENCY)
        return list(found.values())

    async def _list(self, of: Callable[[Any], Any], start_s: int) -> list[Any]:
        asked = {"created": {"gte": max(0, start_s)}, "limit": PAGE_SIZE}
        return await self._ask(lambda: list(of(asked).auto_paging_iter()))

    async def _ask(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return await asyncio.to_thread(call)
        except stripe.InvalidRequestError as error:
            if error.code == "resource_missing":
                raise no_payment() from None
            self._log.failure("stripe.refused", error, http_status=error.http_status)
        except stripe.StripeError as error:
            self._log.failure("stripe.failed", error, http_status=error.http_status)
        raise unavailable("The payment provider")


def no_payment() -> LegatoError:
    return LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="payment"))


def _checkout(session: Any) -> Checkout:
    return Checkout(
        session.id,
        _account_of(session),
        session.amount_total or 0,
        session.status or "",
        session.payment_status == "paid",
        session.url or "",
        session.payment_intent,
    )


def _account_of(found: Any) -> str:
    return str(found.metadata.to_dict().get(ACCOUNT_FIELD, "")) if found.metadata is not None else ""
