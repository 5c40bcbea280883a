"""Prepares the gRPC service for programs."""

import hashlib
import socket
from pathlib import Path
from typing import Any, Final

from edge.chat.edge_state import EdgeState
from edge.rpc.message_turns import UNREAD_BYTES, MessageTurns
from edge.rpc.relay import ProgramRelay
from edge.rpc.servicer import ChatServicer
from edge.rpc.turns_interceptor import TurnsInterceptor
from edge.settings import EdgeSettings
from services.chassis.http.connection_limit import ConnectionLimit, most_connections, show_connections
from services.chassis.process.serving import Process, RpcBeside
from services.chassis.rpc.callers import Role
from services.chassis.rpc.channel import Options
from services.chassis.rpc.listening import listen_for_rpcs
from services.chassis.rpc.server import RpcServer, private_listen

# A program needs one connection, or a few, and each takes three descriptors.
MOST_CONNECTIONS: Final = 1000
CONNECTIONS_SHARE: Final = 20
# Of one connection. gRPC itself refuses further ones, also while those that were cancelled still end.
MOST_STREAMS: Final = 1000
CONNECTION_AGE_S: Final = 300


# A caller that is killed resets its connection, which is noticed at once. One whose machine vanishes does not answer
# these pings, which are sent while nothing is received. The last option is the time for the answer to a ping; the
# second, which is said to be that, is the time for anything to arrive.
KEEPALIVE_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
)


class RelayedServer(RpcServer):
    """A server whose connections are taken by a relay."""

    def __init__(self, relay: ProgramRelay, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._relay = relay

    async def start(self) -> None:
        await super().start()
        await self._relay.start()

    async def stop(self, grace_s: float) -> None:
        self._relay.stop_listening()
        await super().stop(grace_s)
        self._relay.close()


def server_options(stream_life_s: float) -> Options:
    return [
        *KEEPALIVE_OPTIONS,
        # Callers may ping once a second, with and without calls. By default gRPC ends connections on which there is
        # a ping twice in five minutes.
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Callers connect again from time to time, and find edges that were added. What runs goes on.
        ("grpc.max_connection_age_ms", CONNECTION_AGE_S * 1000),
        ("grpc.max_connection_age_grace_ms", round((stream_life_s + CONNECTION_AGE_S) * 1000)),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.http2.lookahead_bytes", UNREAD_BYTES),
        # Of TLS, and of the first settings.
        ("grpc.server_handshake_timeout_ms", 10_000),
    ]


def prepare_rpcs(settings: EdgeSettings, process: Process, edge: EdgeState) -> RpcBeside:
    listen = settings.edge_rpc_listen or private_listen(settings.data, "chat")
    if process.certificates is not None and not listen.startswith("unix:"):
        process.certificates.warn_unless_server(Role.EDGE.value)
    turns = MessageTurns()
    connections = ConnectionLimit(
        min(MOST_CONNECTIONS, most_connections(MOST_CONNECTIONS * CONNECTIONS_SHARE) // CONNECTIONS_SHARE),
        process.clock,
        process.log,
    )
    show_connections(process.registry, connections, "legato_rpc_connections")
    fd = settings.edge_rpc_fd
    listener = listen_for_rpcs(listen) if fd is None else socket.socket(fileno=fd)
    relay = ProgramRelay(listener, _served_at(settings), connections)
    servicer = ChatServicer(edge, relay, turns, settings.stalled_reader_s)
    server = RelayedServer(
        relay,
        listen,
        [servicer],
        process.log,
        process.certificates,
        insecure_tcp=settings.insecure_tcp,
        options=server_options(settings.stream_life_s),
        interceptors=[TurnsInterceptor(turns)],
        served_at=relay.served_at,
    )
    return RpcBeside(server, servicer.cancel_all, settings.drain_s)


def _served_at(settings: EdgeSettings) -> str:
    """Returns the private socket of this edge alone: beside that of its health service if that is one."""
    if settings.edge_health_listen.startswith("unix:"):
        path = Path(settings.edge_health_listen.removeprefix("unix:"))
        return f"unix:{path.with_name(f'{path.stem}-rpc.sock')}"
    host = hashlib.blake2b(socket.gethostname().encode(), digest_size=4).hexdigest()
    return private_listen(settings.data, f"rpc-{host}")
