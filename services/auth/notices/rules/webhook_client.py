"""Sends a notice to a webhook: one POST over TLS, signed, to a public address, and without following redirects."""

import hashlib
import hmac
import ipaddress
import ssl
from typing import Final
from urllib.parse import urlsplit

from services.auth.core.checks import refusal
from services.auth.core.outbound_http import OutboundHttp, RequestFailed, is_link_local, is_public
from services.chassis.sentence import Sentence

TIMEOUT_S: Final = 10.0
# Deliveries that may run at once.
CONNECTIONS_MOST: Final = 32
URL_LENGTH_MOST: Final = 2_000
SIGNATURE_HEADER: Final = "legato-signature"
USER_AGENT: Final = "legato-notices/1"


class DeliveryFailed(Exception):
    """The text is for the account's owners: it has nothing of the response but its status."""


def checked_url(given: str, *, allows_private: bool) -> str:
    """Returns the address of a webhook; raises if nothing could ever be sent there."""
    url = given.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refusal("url", Sentence("address_invalid")) from None
    if len(url) > URL_LENGTH_MOST or not url.isascii() or not url.isprintable() or " " in url:
        raise refusal("url", Sentence("address_invalid"))
    if parts.scheme != "https" and not (parts.scheme == "http" and allows_private):
        raise refusal("url", Sentence("webhook_not_https"))
    if not parts.hostname or port == 0 or "@" in parts.netloc or parts.fragment:
        raise refusal("url", Sentence("webhook_address_form"))
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return url
    if not allows_private and not is_public(str(address)):
        raise refusal("url", Sentence("webhook_not_public"))
    if is_link_local(str(address)):
        raise refusal("url", Sentence("webhook_link_local"))
    return url


def sign(secret: str, body: bytes, now_s: int) -> str:
    """Returns the value of the signature's header, as docs/notices.md tells receivers to verify it."""
    code = hmac.new(secret.encode(), f"{now_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={now_s},v1={code}"


class WebhookClient:
    def __init__(
        self, *, allows_private: bool = False, tls: ssl.SSLContext | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.allows_private = allows_private
        self._http = OutboundHttp(
            connections_most=CONNECTIONS_MOST,
            timeout_s=timeout_s,
            response_bytes_most=0,
            allows_private=allows_private,
            tls=tls,
        )

    async def send(self, url: str, secret: str, notice_id: str, body: bytes, now_s: int) -> None:
        """Sends; raises DeliveryFailed unless the receiver answers with 2xx in time."""
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "legato-notice-id": notice_id,
            SIGNATURE_HEADER: sign(secret, body, now_s),
        }
        try:
            status, _ = await self._http.request(url, headers, body)
        except RequestFailed as error:
            raise DeliveryFailed(str(error)) from None
        if 300 <= status < 400:
            raise DeliveryFailed(f"HTTP {status}: redirects are not followed")
        if not 200 <= status < 300:
            raise DeliveryFailed(f"HTTP {status}")

    def close(self) -> None:
        self._http.close()
