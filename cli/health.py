"""Asks a process whether it serves."""

import socket
from pathlib import Path
from typing import Any, Literal

import msgspec

TIMEOUT_S = 2.0


class Health(msgspec.Struct, frozen=True):
    """How a process is asked: the gRPC health service, or GET /health, on a unix socket."""

    protocol: Literal["grpc", "http"]
    socket: str

    def is_serving(self) -> bool:
        if not is_listening(Path(self.socket)):
            return False
        return grpc_is_serving(f"unix:{self.socket}") if self.protocol == "grpc" else _http_is_serving(self.socket)


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def grpc_is_serving(address: str) -> bool:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from services.chassis.channel import open_sync_channel

    with open_sync_channel(address) as channel:
        # The published types leave the stub's methods out.
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer: health_pb2.HealthCheckResponse = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError:
            return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def _http_is_serving(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TIMEOUT_S)
        try:
            connection.connect(path)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            status_line = connection.makefile("rb").readline(200)
        except OSError:
            return False
    return status_line.split(b" ")[1:2] == [b"200"]
