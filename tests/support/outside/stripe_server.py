"""A Stripe of our own, over a socket: checkouts, payments, refunds and disputes, and events signed as Stripe does.

It also serves the page where a customer pays, so that everything can be tried out by hand:

    python -m tests.support.outside.stripe_server 12111 http://localhost:8081/stripe/webhook

and `legato up` with LEGATO_STRIPE_API_URL=http://127.0.0.1:12111, LEGATO_STRIPE_SECRET_KEY=sk_test_local and
LEGATO_STRIPE_WEBHOOK_SECRET=whsec_local.
"""

import hmac
import itertools
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, urlsplit

SECRET_KEY = "sk_test_local"
WEBHOOK_SECRET = "whsec_local"
# What Stripe alone is to know of a customer.
CARD_NUMBER = "4242424242424242"
EMAIL = "payer@example.org"


class Signed(NamedTuple):
    """An event as it is delivered."""

    payload: bytes
    signature: str


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that are gone: tests kill them."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class StripeServer:
    def __init__(self, port: int = 0, webhook_url: str = "") -> None:
        self.reset()
        self._webhook_url = webhook_url
        self._server = _Server(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def reset(self) -> None:
        """Forgets everything, and counts from one again."""
        self.sessions: dict[str, dict[str, Any]] = {}
        self.intents: dict[str, dict[str, Any]] = {}
        self.refunds: dict[str, dict[str, Any]] = {}
        self.disputes: dict[str, dict[str, Any]] = {}
        self.session_params: list[dict[str, str]] = []
        self.requests = 0
        # When what is made from now on was created.
        self.now_s = 1_700_000_000
        # Answers every request with this status, if it is not 0.
        self.fails_with = 0
        self._by_idempotency_key: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def new_payment(self, account_id: str, cents: int, *, is_paid: bool = True, currency: str = "usd") -> str:
        """Returns the id of a payment, as if its checkout had been created by us."""
        session = self._create_session(
            {
                "line_items[0][price_data][unit_amount]": str(cents),
                "line_items[0][price_data][currency]": currency,
                "metadata[legato_account_id]": account_id,
                "payment_intent_data[metadata][legato_account_id]": account_id,
                "client_reference_id": account_id,
                "success_url": "http://localhost:8081/credit/payment?checkout={CHECKOUT_SESSION_ID}",
            }
        )
        intent_id = self._begin_payment(session)
        if is_paid:
            self.pay(session["id"])
        return intent_id

    def pay(self, session_id: str) -> str:
        """Pays a checkout; returns the payment's id."""
        session = self.sessions[session_id]
        intent = self.intents[self._begin_payment(session)]
        intent.update(status="succeeded", amount_received=intent["amount"])
        session.update(status="complete", payment_status="paid", customer_details={"email": EMAIL})
        return str(intent["id"])

    def refund(self, intent_id: str, cents: int, status: str = "succeeded") -> str:
        return self._return(self.refunds, "re", "refund", intent_id, cents, status)

    def dispute(self, intent_id: str, cents: int, status: str = "needs_response") -> str:
        return self._return(self.disputes, "du", "dispute", intent_id, cents, status)

    def set_status(self, returned_id: str, status: str) -> None:
        found = self.refunds if returned_id in self.refunds else self.disputes
        found[returned_id]["status"] = status

    def event(self, kind: str, intent_id: str, **fields: Any) -> bytes:
        """Returns an event about a payment, with as much of a card as Stripe would put into it."""
        described = {
            "id": f"xx_{next(self._numbers)}",
            "payment_intent": intent_id,
            "customer_details": {"email": EMAIL},
            "payment_method_details": {"card": {"last4": CARD_NUMBER[-4:], "number": CARD_NUMBER}},
        }
        return json.dumps(
            {
                "id": f"evt_{next(self._numbers)}",
                "object": "event",
                "type": kind,
                "created": int(time.time()),
                "livemode": False,
                "data": {"object": described},
                **fields,
            }
        ).encode()

    def _begin_payment(self, session: dict[str, Any]) -> str:
        if session["payment_intent"] is None:
            intent_id = f"pi_{next(self._numbers):024d}"
            self.intents[intent_id] = {
                "id": intent_id,
                "object": "payment_intent",
                "created": self.now_s,
                "amount": session["amount_total"],
                "amount_received": 0,
                "currency": session["currency"],
                "status": "requires_payment_method",
                "metadata": session["intent_metadata"],
                "receipt_email": EMAIL,
            }
            session["payment_intent"] = intent_id
        return str(session["payment_intent"])

    def _return(
        self, found: dict[str, dict[str, Any]], prefix: str, kind: str, intent_id: str, cents: int, status: str
    ) -> str:
        number = next(self._numbers)
        returned_id = f"{prefix}_{number:024d}"
        found[returned_id] = {
            "id": returned_id,
            "object": kind,
            "amount": cents,
            "currency": "usd",
            "created": self.now_s,
            "payment_intent": intent_id,
            "status": status,
        }
        return returned_id

    def _create_session(self, params: dict[str, str]) -> dict[str, Any]:
        session_id = f"cs_test_{next(self._numbers):058d}"
        self.sessions[session_id] = {
            "id": session_id,
            "object": "checkout.session",
            "amount_total": int(params["line_items[0][price_data][unit_amount]"]),
            "currency": params["line_items[0][price_data][currency]"],
            "client_reference_id": params.get("client_reference_id"),
            "metadata": {"legato_account_id": params["metadata[legato_account_id]"]},
            "intent_metadata": {"legato_account_id": params["payment_intent_data[metadata][legato_account_id]"]},
            "payment_intent": None,
            "payment_status": "unpaid",
            "status": "open",
            "success_url": params["success_url"],
            "cancel_url": params.get("cancel_url", ""),
            "url": f"{self.url}/pay/{session_id}",
        }
        return self.sessions[session_id]

    def answer(self, method: str, path: str, body: str, idempotency_key: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests += 1
        if self.fails_with:
            return self.fails_with, {"error": {"type": "api_error", "message": f"{EMAIL} {CARD_NUMBER}"}}
        match parts.path.strip("/").split("/"):
            case ["v1", "checkout", "sessions"] if method == "POST":
                return 200, self._new_session(dict(parse_qsl(body)), idempotency_key)
            case ["v1", "checkout", "sessions", session_id] if session_id in self.sessions:
                return 200, self.sessions[session_id]
            case ["v1", ("payment_intents" | "refunds" | "disputes") as kind] if "created[gte]" in asked:
                found = {"payment_intents": self.intents, "refunds": self.refunds, "disputes": self.disputes}[kind]
                return 200, self._page(parts.path, found, asked)
            case ["v1", "payment_intents", intent_id] if intent_id in self.intents:
                return 200, self.intents[intent_id]
            case ["v1", ("refunds" | "disputes") as kind]:
                found = self.refunds if kind == "refunds" else self.disputes
                listed = [each for each in list(found.values()) if each["payment_intent"] == asked["payment_intent"]]
                return 200, {"object": "list", "url": parts.path, "has_more": False, "data": listed}
        return 404, {"error": {"type": "invalid_request_error", "code": "resource_missing", "message": "No such thing"}}

    def _page(self, url: str, found: dict[str, dict[str, Any]], asked: dict[str, str]) -> dict[str, Any]:
        """Returns a page of what was created since a time, the newest first, as Stripe does: here, of two at most."""
        since = [each for each in reversed(found.values()) if each["created"] >= int(asked["created[gte]"])]
        ids = [each["id"] for each in since]
        start = ids.index(asked["starting_after"]) + 1 if "starting_after" in asked else 0
        page = since[start : start + min(2, int(asked["limit"]))]
        return {"object": "list", "url": url, "has_more": start + len(page) < len(since), "data": page}

    def _new_session(self, params: dict[str, str], idempotency_key: str) -> dict[str, Any]:
        if idempotency_key in self._by_idempotency_key:
            return self.sessions[self._by_idempotency_key[idempotency_key]]
        self.session_params.append(params)
        session = self._create_session(params)
        self._by_idempotency_key[idempotency_key] = session["id"]
        return session

    def show(self, path: str) -> tuple[str, str]:
        """Returns the page where a customer pays, or where the browser goes once they have."""
        parts = urlsplit(path)
        session = self.sessions[parts.path.rpartition("/")[2]]
        if parts.query != "paid":
            dollars = session["amount_total"] / 100
            return "", (
                f"<!doctype html><title>Checkout</title><h1>Pay ${dollars:.2f}</h1>"
                f'<a id="pay" href="{parts.path}?paid">Pay</a> <a id="cancel" href="{session["cancel_url"]}">Cancel</a>'
            )
        intent_id = self.pay(session["id"])
        if self._webhook_url:
            deliver(self._webhook_url, sign(self.event("checkout.session.completed", intent_id)))
        return session["success_url"].replace("{CHECKOUT_SESSION_ID}", session["id"]), ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.path.startswith("/pay/"):
                    location, page = server.show(self.path)
                    self._send(303 if location else 200, page.encode(), "text/html", location)
                else:
                    self._answer("")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"] or 0)).decode())

            def _answer(self, body: str) -> None:
                if self.headers["authorization"] != f"Bearer {SECRET_KEY}":
                    status, content = 401, {"error": {"type": "invalid_request_error", "message": "No such key"}}
                else:
                    key = self.headers["idempotency-key"] or ""
                    status, content = server.answer(self.command, self.path, body, key)
                self._send(status, json.dumps(content).encode(), "application/json")

            def _send(self, status: int, body: bytes, kind: str, location: str = "") -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                if location:
                    self.send_header("location", location)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        return Handler


def sign(payload: bytes, *, secret: str = WEBHOOK_SECRET, at_s: float | None = None) -> Signed:
    stamp = int(time.time() if at_s is None else at_s)
    digest = hmac.new(secret.encode(), f"{stamp}.".encode() + payload, "sha256").hexdigest()
    return Signed(payload, f"t={stamp},v1={digest}")


def deliver(url: str, event: Signed) -> int:
    """Posts an event as Stripe does; returns the status."""
    headers = {"content-type": "application/json", "stripe-signature": event.signature}
    request = urllib.request.Request(url, event.payload, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


if __name__ == "__main__":
    StripeServer(int(sys.argv[1]), sys.argv[2])
    threading.Event().wait()
