"""The client's IP address: that of the connection, or what a trusted proxy says in x-forwarded-for."""

import ipaddress

from edge.wire.asgi import HttpScope
from services.chassis.settings import SettingsError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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

    def _forwarded(self, scope: HttpScope) -> Address | None:
        """Returns the last address that is not a trusted proxy: a client can forge all before it."""
        forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
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
