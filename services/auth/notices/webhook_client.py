"""Sends a notice to a webhook: one POST over TLS, signed, to a public address, and without following redirects.

The client of providers belongs to the router, so this uses http.client in threads, like users/oidc.py. The host's name
is resolved here and the connection goes to the address that was checked: a name that changes between the check and the
connection leads nowhere else.
"""

import asyncio
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import SplitResult, urlsplit

from services.chassis.errors import LegatoError, Reason

TIMEOUT_S: Final = 10.0
CONNECTIONS_MOST: Final = 8
URL_LENGTH_MOST: Final = 2_000
SIGNATURE_HEADER: Final = "legato-signature"
USER_AGENT: Final = "legato-notices/1"
# IPv6 addresses that stand for an IPv4 address at a gateway.
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], list[str]]


class WebhookFailure(Exception):
    """The text is for the account's owners: it has nothing of the response but its status."""


def checked_url(given: str, *, allows_private: bool) -> str:
    """Returns the address of a webhook; raises if nothing could ever be sent there."""
    url = given.strip()
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refusal("This is not an address.") from None
    if len(url) > URL_LENGTH_MOST or not url.isascii() or not url.isprintable() or " " in url:
        raise _refusal("This is not an address.")
    if parts.scheme != "https" and not (parts.scheme == "http" and allows_private):
        raise _refusal("A webhook's address must start with https://.")
    if not parts.hostname or port == 0 or "@" in parts.netloc or parts.fragment:
        raise _refusal("A webhook's address must be https://HOST/PATH, without a password or a fragment.")
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return url
    if not allows_private and not is_public(str(address)):
        raise _refusal("A webhook's address must be reachable from the internet.")
    return url


def sign(secret: str, body: bytes, now_s: int) -> str:
    """Returns the value of the signature's header, as docs/notices.md tells receivers to verify it."""
    code = hmac.new(secret.encode(), f"{now_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={now_s},v1={code}"


def is_public(text: str) -> bool:
    """Returns whether an address is on the internet, rather than in a network of ours."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if embedded is not None:
            return is_public(str(embedded))
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class WebhookClient:
    def __init__(
        self,
        *,
        allows_private: bool = False,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
        resolve: Resolve = resolve,
    ) -> None:
        """Takes a context of TLS for tests; others trust what the machine trusts."""
        self.allows_private = allows_private
        self._tls = tls
        self._timeout_s = timeout_s
        self._resolve = resolve
        # Its threads start with the first notice.
        self._threads = ThreadPoolExecutor(CONNECTIONS_MOST, thread_name_prefix="webhook")

    async def send(self, url: str, secret: str, notice_id: str, body: bytes, now_s: int) -> None:
        """Sends; raises WebhookFailure unless the receiver answers with 2xx in time."""
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            "legato-notice-id": notice_id,
            SIGNATURE_HEADER: sign(secret, body, now_s),
            "connection": "close",
        }
        attempt = _Attempt(urlsplit(url), body, headers, self)
        sending = asyncio.get_running_loop().run_in_executor(self._threads, attempt.run)
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await asyncio.shield(sending)
        except TimeoutError:
            # A receiver that sends a byte now and then would hold the thread.
            attempt.abort()
            sending.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise WebhookFailure("no answer in time") from None
        if 300 <= status < 400:
            raise WebhookFailure(f"HTTP {status}: redirects are not followed")
        if not 200 <= status < 300:
            raise WebhookFailure(f"HTTP {status}")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def address_of(self, host: str, port: int) -> str:
        """Returns an address of the host that may be connected to."""
        try:
            addresses = self._resolve(host, port)
        except OSError:
            raise WebhookFailure("the host name is not known") from None
        allowed = [address for address in addresses if self.allows_private or is_public(address)]
        if not allowed or len(allowed) < len(addresses):
            # One that is both here and there is not trusted at all.
            raise WebhookFailure("the address is not on the internet")
        return allowed[0]

    def connect(self, parts: SplitResult) -> socket.socket:
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        connected = socket.create_connection((self.address_of(host, port), port), self._timeout_s)
        if parts.scheme == "http":
            return connected
        if self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            return self._tls.wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise


class _Attempt:
    """One request, in a thread. Another may abort it."""

    def __init__(self, parts: SplitResult, body: bytes, headers: dict[str, str], client: WebhookClient) -> None:
        self._parts = parts
        self._body = body
        self._headers = headers
        self._client = client
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def run(self) -> int:
        """Returns the status."""
        try:
            self._socket = self._client.connect(self._parts)
            if self._is_aborted:
                raise WebhookFailure("no answer in time")
            return self._exchange(self._socket)
        except ssl.SSLError:
            raise WebhookFailure("TLS failed") from None
        except TimeoutError:
            raise WebhookFailure("no answer in time") from None
        except OSError:
            raise WebhookFailure("the connection failed") from None
        except http.client.HTTPException:
            raise WebhookFailure("the answer is not HTTP") from None
        finally:
            if self._socket is not None:
                self._socket.close()

    def abort(self) -> None:
        self._is_aborted = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _exchange(self, connected: socket.socket) -> int:
        parts = self._parts
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
        connection.sock = connected
        # Without the port that the scheme implies.
        headers = {"host": parts.netloc, **self._headers}
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, self._body, headers)
        with connection.getresponse() as response:
            return response.status


def _refusal(message: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param="url")
