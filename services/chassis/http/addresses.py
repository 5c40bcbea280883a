"""The addresses of clients, directly connected or behind proxies that are trusted to name them."""

import ipaddress

from services.chassis.http.asgi import HttpScope
from services.chassis.settings import SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# The IPv6 network that one customer of a provider has at least.
CLIENT_NETWORK_BITS = 64


class Addresses:
    def __init__(self, trusted_proxies: str = "") -> None:
        """Parses addresses or networks (`10.0.0.0/8`), comma-separated."""
        self._trusted = [_to_network(given.strip()) for given in trusted_proxies.split(",") if given.strip()]

    def of(self, scope: HttpScope) -> Address | None:
        """Returns the address, or None for a client on a Unix socket."""
        client = scope.get("client")
        address = _to_address(client[0]) if client else None
        if address is None or not self._trusted or not self._is_trusted(address):
            return address
        return self._forwarded(scope) or address

    def network_of(self, scope: HttpScope) -> int | None:
        """Returns a number that stands for one client: of IPv6, each has a whole network. None for loopback and Unix
        sockets, which are no one client's."""
        address = self.of(scope)
        return None if address is None or address.is_loopback else client_network(address)

    def of_connection(self, host: str) -> Address | None:
        """Returns the address of a connection's client; None where many clients share it, since it is a proxy's, and
        for a Unix socket."""
        address = _to_address(host)
        return None if address is None or self._is_trusted(address) else address

    def forwarded_header(self, scope: HttpScope) -> bytes:
        """Returns what proxies say of the client; empty where none is trusted."""
        if not self._trusted:
            return b""
        return b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")

    def _forwarded(self, scope: HttpScope) -> Address | None:
        """Returns the last address that is not a trusted proxy: a client can forge all before it."""
        forwarded = self.forwarded_header(scope)
        address = None
        for given in reversed(forwarded.decode("latin-1").split(",")):
            address = _to_address(given.strip())
            if address is None or not self._is_trusted(address):
                return address
        return address

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self._trusted)


def _to_address(given: str) -> Address | None:
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _to_network(given: str) -> Network:
    try:
        return ipaddress.ip_network(given)
    except ValueError:
        raise SettingsError(f"LEGATO_TRUSTED_PROXIES: {given} is not an IP address or network") from None


def client_network(address: Address) -> int:
    """Returns a number that stands for one client: of IPv6, each has a whole network."""
    if isinstance(address, ipaddress.IPv6Address):
        # Negative, so that none equals an IPv4 address.
        return -(int(address) >> CLIENT_NETWORK_BITS) - 1
    return int(address)
