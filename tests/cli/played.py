"""Services played by the test on grpcio-testing's channels: real commands, real stubs, and a script for the far end."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc_testing
from click.testing import CliRunner, Result

from cli.connection import ServiceStubs
from cli.main import legato
from legato_protos.auth.v1 import accounts_pb2, auth_pb2, notices_pb2, users_pb2
from legato_protos.metering.v1 import metering_pb2, reports_pb2, spend_limits_pb2, statements_pb2
from legato_protos.metering.v1 import notices_pb2 as metering_notices_pb2
from legato_protos.payments.v1 import payments_pb2
from legato_protos.router.v1 import content_pb2, router_pb2
from services.chassis.errors import LegatoError, to_status
from services.chassis.rpc.channel import STATUS_DETAILS_KEY

FILES = {
    "auth": auth_pb2.DESCRIPTOR,
    "metering": metering_pb2.DESCRIPTOR,
    "payments": payments_pb2.DESCRIPTOR,
    "router": router_pb2.DESCRIPTOR,
}
# Further services, of another file of the same package.
MORE = {
    "auth": [users_pb2.DESCRIPTOR, notices_pb2.DESCRIPTOR, accounts_pb2.DESCRIPTOR],
    "metering": [
        statements_pb2.DESCRIPTOR,
        spend_limits_pb2.DESCRIPTOR,
        metering_notices_pb2.DESCRIPTOR,
        reports_pb2.DESCRIPTOR,
    ],
    "router": [content_pb2.DESCRIPTOR],
}

# What the far end does with a call: answers, refuses, or breaks.
Answer = Any


class Expecting:
    """A channel that fails a call which is not the next in the script; the one behind it would wait for ever."""

    def __init__(self, channel: Any, due: deque[str]) -> None:
        self._channel, self._due = channel, due

    def unary_unary(self, path: str, **options: Any) -> Callable[..., Any]:
        call = self._channel.unary_unary(path, **options)

        def expected(request: Any, timeout: float) -> Any:
            assert self._due, f"unexpected: {path}"
            assert self._due.popleft() == path
            return call(request, timeout=timeout)

        return expected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


@dataclass
class Played:
    """`script` holds ("auth", "AccountAdminService.GetAccount", answer), in the order in which calls must come."""

    script: Sequence[tuple[str, str, Answer]]
    requests: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.channels = {
            name: grpc_testing.channel(_services(name).values(), grpc_testing.strict_real_time()) for name in FILES
        }
        self._due = deque(f"/{FILES[service].package}.{method.replace('.', '/')}" for service, method, _ in self.script)
        self.services = ServiceStubs(self._open)
        self._player = threading.Thread(target=self._play, daemon=True)
        self._player.start()

    def _open(self, service: str) -> Any:
        return Expecting(self.channels[service], self._due)

    def _play(self) -> None:
        for service, method, answer in self.script:
            service_name, _, method_name = method.partition(".")
            descriptor = _services(service)[service_name].methods_by_name[method_name]
            _, request, rpc = self.channels[service].take_unary_unary(descriptor)
            # As the far end gets it: the near end may change its own for the next page.
            self.requests.append(type(request).FromString(request.SerializeToString()))
            rpc.send_initial_metadata(())
            if isinstance(answer, LegatoError):
                details = to_status(answer).SerializeToString()
                rpc.terminate(None, ((STATUS_DETAILS_KEY, details),), answer.wire.grpc_code, answer.message)
            elif isinstance(answer, grpc.StatusCode):
                rpc.terminate(None, (), answer, "")
            else:
                rpc.terminate(answer, (), grpc.StatusCode.OK, "")

    def run(self, *arguments: str) -> Result:
        result = CliRunner().invoke(legato, arguments, obj=self.services)
        if result.exit_code == 0:
            self._player.join(timeout=60)
            assert len(self.requests) == len(self.script), "the command made fewer calls than it should"
        return result


def _services(name: str) -> dict[str, Any]:
    files = [FILES[name], *MORE.get(name, [])]
    return {found: service for file in files for found, service in file.services_by_name.items()}


def play(*script: tuple[str, str, Answer]) -> Played:
    return Played(script)
