"""Opens channels to the edges."""

from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final, cast

import grpc
import grpc.aio

# Any other name in a server's certificate is refused.
_SERVER_NAME: Final = "edge"
# Fits a prompt of a million tokens.
_LARGEST_MESSAGE_BYTES: Final = 20 * 1024 * 1024
# How long calls wait for an edge that restarts. Pings begin before the connection is complete, and end it then, too.
CONNECT_TIMEOUT_MS = 20_000
KEEPALIVE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of the authority, and of the certificate by which the edge knows this program; they are read when a
    client is made."""

    authority: str | PathLike[str]
    certificate: str | PathLike[str]
    key: str | PathLike[str]

    def credentials(self) -> grpc.ChannelCredentials:
        authority, key, certificate = (Path(path).read_bytes() for path in (self.authority, self.key, self.certificate))
        return grpc.ssl_channel_credentials(authority, key, certificate)


def service_config() -> str:
    """Reads which calls gRPC repeats, and that it takes the addresses in turns."""
    return files("legato_protos.client").joinpath("service_config.json").read_text()


def open_channel(address: str, certificates: Certificates | None) -> grpc.Channel:
    return cast(grpc.Channel, _open(grpc, address, certificates))


def open_async_channel(address: str, certificates: Certificates | None) -> grpc.aio.Channel:
    return cast(grpc.aio.Channel, _open(grpc.aio, address, certificates))


def _open(kind: Any, address: str, certificates: Certificates | None) -> Any:
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", service_config()),
        ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
        ("grpc.max_send_message_length", _LARGEST_MESSAGE_BYTES),
        # gRPC would not repeat a prompt of more than 256 KB.
        ("grpc.per_rpc_retry_buffer_size", _LARGEST_MESSAGE_BYTES),
        # An edge that was restarted is found within the time of the retries.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Despite its name: the timeout of one connection attempt, for which calls wait. The socket of an edge that
        # restarts takes connections before the edge serves.
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
        # An edge that has gone silent is left within 20 s, and its calls go to others. The last option is the time for
        # the answer to a ping; the second is the time for anything to arrive.
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # gRPC reads proxy settings from the environment; edges are never behind a proxy.
        ("grpc.enable_http_proxy", 0),
    ]
    if address.startswith("unix:"):
        return kind.insecure_channel(address, options=options)
    if certificates is None:
        raise ValueError("An address on TCP needs certificates.")
    options.append(("grpc.ssl_target_name_override", _SERVER_NAME))
    return kind.secure_channel(address, certificates.credentials(), options=options)
