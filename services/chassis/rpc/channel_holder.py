"""A connection to one process of a service, which outlives the certificates it was opened with."""

from collections.abc import Callable
from typing import Generic, TypeVar

import grpc.aio

from services.chassis.rpc.certificates import Certificates, Pem
from services.chassis.rpc.channel import open_channel

StubT = TypeVar("StubT")


class ChannelHolder(Generic[StubT]):
    """A channel connects again by itself, but always with the certificate it was given. So when that was replaced, the
    next call goes over a new channel; calls on the old one go on."""

    def __init__(
        self,
        address: str,
        server_name: str,
        make_stub: Callable[[grpc.aio.Channel], StubT],
        certificates: Certificates | None = None,
    ) -> None:
        self._address = address
        self._server_name = server_name
        self._make_stub = make_stub
        self._certificates = certificates
        # Certificates are replaced a few times a year, and a channel on which nobody calls costs next to nothing.
        self._left: list[grpc.aio.Channel] = []
        self._open()

    @property
    def stub(self) -> StubT:
        """For one call; ask again for the next."""
        if self._certificates is not None and self._certificates.current() is not self._tls:
            self._left.append(self._channel)
            self._open()
        return self._stub

    async def reopen(self) -> None:
        """A connection on which nothing comes through may never say that it is broken."""
        broken = self._channel
        self._open()
        await broken.close()

    async def close(self) -> None:
        for channel in (*self._left, self._channel):
            await channel.close()

    def _open(self) -> None:
        self._tls: Pem | None = self._certificates.current() if self._certificates is not None else None
        self._channel = open_channel(self._address, self._tls, self._server_name)
        self._stub = self._make_stub(self._channel)
