"""Finds the position of this edge among all edges, by which it chooses its routers."""

import contextlib
import re
import socket
from typing import Final

from services.chassis.rpc.replicas import parse_endpoints, resolve
from services.chassis.rpc.subset import ClientPosition, ring
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log

FORM: Final = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")


def parse_position(text: str) -> ClientPosition | None:
    """Reads NUMBER/COUNT with numbers from 1 on, such as 2/8; None if it is empty."""
    if not text:
        return None
    found = FORM.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise SettingsError("LEGATO_EDGE_POSITION: must be NUMBER/COUNT, from 1/COUNT to COUNT/COUNT")
    return ClientPosition(int(found[1]) - 1, int(found[2]))


class EdgePosition:
    """A position that was given, or one that is found in a list of all edges: a name that resolves to all of them."""

    def __init__(self, given: ClientPosition | None, peers: str, port: int, log: Log) -> None:
        """Takes `peers` as an address setting; `port` is the port of this edge."""
        self._known = given
        self._peers = [endpoint.address for endpoint in parse_endpoints(peers)] if given is None else []
        self._port = port
        self._log = log

    async def find(self) -> ClientPosition | None:
        if self._peers:
            try:
                found = await self._find_among_peers()
            except OSError:
                self._log.warning("replicas.unresolved", name="The edges", address=",".join(self._peers))
            else:
                # An edge that is starting or shutting down is not listed, and keeps the position it had.
                self._known = found or self._known
        return self._known

    async def _find_among_peers(self) -> ClientPosition | None:
        addresses = ring({address for peer in self._peers for address in await resolve(peer)})
        ours = [address for address in addresses if is_local(address)]
        if len(ours) > 1:
            ours = [address for address in ours if address.endswith(f":{self._port}")]
        return ClientPosition(addresses.index(ours[0]), len(addresses)) if len(ours) == 1 else None


def is_local(address: str) -> bool:
    """Returns whether the address belongs to this machine or container: only then can a socket be bound to it."""
    host = address.rpartition(":")[0].strip("[]")
    with (
        socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe,
        contextlib.suppress(OSError),
    ):
        probe.bind((host, 0))
        return True
    return False
