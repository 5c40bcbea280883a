"""Opens gRPC channels to services, and translates their failures to `LegatoError`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar, cast

import grpc
import grpc.aio
from google.rpc.status_pb2 import Status

from services.chassis.errors import LegatoError, from_status, internal_error, unavailable
from services.chassis.rpc.certificates import Certificates, Pem

STATUS_DETAILS_KEY = "grpc-status-details-bin"

# Fits a prompt of a million tokens as JSON.
LARGEST_MESSAGE_BYTES = 20 * 1024 * 1024


# Of gRPC, by name.
Options = Sequence[tuple[str, int | str]]


def channel_options() -> Options:
    return [
        ("grpc.max_receive_message_length", LARGEST_MESSAGE_BYTES),
        ("grpc.max_send_message_length", LARGEST_MESSAGE_BYTES),
        # Reconnects quickly when a service was restarted.
        ("grpc.initial_reconnect_backoff_ms", 50),
        # Despite its name: the timeout of one connection attempt.
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Two channels to one address get two connections: nothing queues behind a big prompt.
        ("grpc.use_local_subchannel_pool", 1),
        # Probing for a larger window answers many messages with a ping, and wakes several threads on both sides. The
        # default window is enough between our processes.
        ("grpc.http2.bdp_probe", 0),
        # gRPC reads proxy settings from the environment; services are never behind a proxy.
        ("grpc.enable_http_proxy", 0),
    ]


def open_channel(address: str, tls: Pem | None = None, server_name: str = "") -> grpc.aio.Channel:
    """Opens a channel; with `tls`, a TCP server must prove that it is `server_name`."""
    if tls is None or address.startswith("unix:"):
        return grpc.aio.insecure_channel(address, options=channel_options())
    return grpc.aio.secure_channel(address, _credentials(tls), options=_options_of(server_name))


def open_sync_channel(address: str, tls: Pem | None = None, server_name: str = "") -> grpc.Channel:
    if tls is None or address.startswith("unix:"):
        return grpc.insecure_channel(address, options=channel_options())
    return grpc.secure_channel(address, _credentials(tls), options=_options_of(server_name))


def _credentials(tls: Pem) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)


def _options_of(server_name: str) -> Options:
    # Replicas have many addresses; the certificate is verified against the service's name.
    return [*channel_options(), ("grpc.ssl_target_name_override", server_name)]


@contextmanager
def errors_of(service: str) -> Iterator[None]:
    """Translates gRPC errors of a call in its block to `LegatoError`."""
    try:
        yield
    except grpc.RpcError as error:
        raise from_rpc_error(error, service) from None


def from_rpc_error(error: grpc.RpcError, service: str) -> LegatoError:
    if was_lost(error):
        return unavailable(service)
    details = _status_details(error)
    return internal_error() if details is None else from_status(Status.FromString(details))


class _EndedCall(Protocol):
    """A call that failed, as synchronous and aio errors have it; grpc.RpcError declares nothing."""

    def code(self) -> grpc.StatusCode: ...
    def trailing_metadata(self) -> Iterable[tuple[str, bytes]] | None: ...


def was_lost(error: grpc.RpcError) -> bool:
    """Returns whether a call got no answer, not even a refusal."""
    lost_codes = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    return _status_details(error) is None and cast(_EndedCall, error).code() in lost_codes


def _status_details(error: grpc.RpcError) -> bytes | None:
    metadata = cast(_EndedCall, error).trailing_metadata() or ()
    return next((value for key, value in metadata if key == STATUS_DETAILS_KEY), None)


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
