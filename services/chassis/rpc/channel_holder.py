"""A channel to one replica, which is replaced when its certificate is."""

from collections.abc import Callable
from typing import Generic, TypeVar

import grpc.aio

from services.chassis.rpc.certificates import Certificates, Pem
from services.chassis.rpc.channel import open_channel

StubT = TypeVar("StubT")


class ChannelHolder(Generic[StubT]):
    """Holds a channel, which reconnects by itself, but always with the certificate it was opened with. So after a
    replacement the next call uses a new channel; calls on the old one continue."""

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
        # Kept open: certificates are replaced a few times a year, and an idle channel costs next to nothing.
        self._left: list[grpc.aio.Channel] = []
        self._open()

    @property
    def stub(self) -> StubT:
        """Returns the stub for one call; get it again for the next."""
        if self._certificates is not None and self._certificates.current() is not self._tls:
            self._left.append(self._channel)
            self._open()
        return self._stub

    async def reopen(self) -> None:
        """Replaces the channel: a broken connection may never report that it is."""
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
