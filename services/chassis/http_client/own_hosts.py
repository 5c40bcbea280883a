"""Tells servers of the operator's own from those of others, by their names and addresses."""

from ipaddress import IPv6Address, ip_address
from typing import Final

# Names that no public host has.
_OWN_ENDINGS: Final = (".local", ".internal", ".svc", ".test", ".example", ".invalid", ".localhost")


def is_own_host(host: str) -> bool:
    """Returns whether a server is the operator's own, by its name or address: on this machine or in a private
    network."""
    try:
        address = ip_address(host)
    except ValueError:
        name = host.rstrip(".").lower()
        return "." not in name or name.endswith(_OWN_ENDINGS)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_private or address.is_link_local
