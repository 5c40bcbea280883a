"""Checks the health of a process."""

import socket
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

TIMEOUT_S = 2.0


class HealthProbe(msgspec.Struct, frozen=True):
    """A health check: by the gRPC health service, or GET /health, on a Unix socket."""

    protocol: Literal["grpc", "http"]
    socket: str
    # The HTTP path that shows whether the process does any work: server threads answer the others even if the working
    # thread hangs.
    work_path: str = "/health"

    def is_serving(self) -> bool:
        if not is_listening(Path(self.socket)):
            return False
        if self.protocol == "grpc":
            return grpc_is_serving(f"unix:{self.socket}")
        return _http_status(self.socket, "/health", TIMEOUT_S) == 200

    def answers(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Returns whether the process responds in time, even if it says that it does not serve."""
        if not is_listening(Path(self.socket), timeout_s):
            return False
        if self.protocol == "grpc":
            return _grpc_status(f"unix:{self.socket}", timeout_s) not in _NO_ANSWER
        return _http_status(self.socket, self.work_path, timeout_s) is not None


# gRPC's own status codes for a missing response.
_NO_ANSWER = ("UNAVAILABLE", "DEADLINE_EXCEEDED")


def is_listening(path: Path, timeout_s: float = TIMEOUT_S) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(timeout_s)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def grpc_is_serving(address: str) -> bool:
    return _grpc_status(address, TIMEOUT_S) == "SERVING"


def _grpc_status(address: str, timeout_s: float) -> str:
    """Returns the health service's status, or, if it did not answer, gRPC's status code."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from services.chassis.rpc.channel import open_sync_channel

    with open_sync_channel(address) as channel:
        # The published types omit the stub's methods.
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer: health_pb2.HealthCheckResponse = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            # The published types also omit that the error raised is the call.
            call: Any = error
            return str(call.code().name)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)


def _http_status(path: str, target: str, timeout_s: float) -> int | None:
    """Returns the status; None without an answer."""
    import http.client

    connection = http.client.HTTPConnection("localhost")
    with socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(timeout_s)
        try:
            connection.sock.connect(path)
            connection.request("GET", target, headers={"Connection": "close"})
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None


# A few missed checks may be chance.
LEAST_MISSES: Final = 4
# How late the supervisor itself may be. If it is later, the machine was suspended or has no CPU time to give, and a
# missed check says nothing about the process.
LATE_S: Final = 1.0


class Responsiveness:
    """Tracks the checks of one run of a process. Its clock does not advance while the machine sleeps. Times that the
    process was `starved`, ready to run without a processor, are sums since it began."""

    def __init__(self, started_at_s: float, *, start_timeout_s: float, unresponsive_after_s: float) -> None:
        # A process has the start timeout until its first answer.
        self._allowed_s = max(start_timeout_s, unresponsive_after_s)
        self._allowed_later_s = unresponsive_after_s
        self._answered_at_s = self._silent_since_s = started_at_s
        self._starved_s = 0.0
        self._misses = 0
        self._is_overload_reported = False

    def record_answer(self, now_s: float, starved_s: float = 0.0) -> None:
        self._allowed_s = self._allowed_later_s
        self._answered_at_s = now_s
        self._is_overload_reported = False
        self._begin_again(now_s, starved_s)

    def record_work(self, now_s: float, starved_s: float = 0.0) -> bool:
        """Records that the process works, though it did not answer. Returns whether that is to be told: once, when it
        has lasted for as long as a process that hangs is given."""
        self._begin_again(now_s, starved_s)
        if self._is_overload_reported or now_s - self._answered_at_s < self._allowed_s:
            return False
        self._is_overload_reported = True
        return True

    def record_miss(
        self, due_at_s: float, began_at_s: float, ended_at_s: float, timeout_s: float, starved_s: float = 0.0
    ) -> bool:
        """Returns whether the process hangs. The check was due at `due_at_s` and had a timeout of `timeout_s`."""
        if began_at_s - due_at_s > LATE_S or ended_at_s - began_at_s > timeout_s + LATE_S:
            self._begin_again(ended_at_s, starved_s)
            return False
        self._misses += 1
        could_run_s = self.silent_s(ended_at_s) - (starved_s - self._starved_s)
        return self._misses >= LEAST_MISSES and could_run_s >= self._allowed_s

    def silent_s(self, now_s: float) -> float:
        return now_s - self._silent_since_s

    def _begin_again(self, now_s: float, starved_s: float) -> None:
        self._silent_since_s, self._starved_s = now_s, starved_s
        self._misses = 0
