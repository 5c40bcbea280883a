"""Runs a gRPC server: listening, TLS, health, reflection, and graceful shutdown."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.callers import Role
from services.chassis.rpc.certificates import Certificates, Pem
from services.chassis.rpc.channel import Options, channel_options
from services.chassis.rpc.interceptor import ErrorInterceptor
from services.chassis.rpc.methods import Methods, service_name
from services.chassis.rpc.reflection import serve_reflection
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log


class RpcServer:
    def __init__(
        self,
        listen: str,
        servicers: Sequence[object],
        log: Log,
        certificates: Certificates | None = None,
        *,
        health_listen: str = "",
        insecure_tcp: bool = False,
        access: AccessCheck | None = None,
        console_listen: str = "",
        console_role: str = Role.CONSOLE.value,
        options: Options = (),
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        served_at: str = "",
    ) -> None:
        """Prepares a server; with certificates, TCP clients must present one of the same authority. `console_listen` is
        a further unix socket, whose clients may do only what `console_role` may, with the tokens that `access`
        checks. `options` and `interceptors` are further ones of gRPC. `served_at` is a private `unix:PATH` to which
        another listener passes what it receives at `listen`."""
        if not listen.startswith("unix:") and certificates is None and not insecure_tcp:
            raise SettingsError(
                f"{listen} is reachable from the network without TLS: set LEGATO_TLS_CA, LEGATO_TLS_CERT and "
                "LEGATO_TLS_KEY, or listen on unix:PATH, or set LEGATO_INSECURE_TCP=1"
            )
        self._listen = served_at or listen
        self._certificates = None if listen.startswith("unix:") else certificates
        self._health = HealthServicer()
        self._health_server = HealthServer(health_listen, self._health) if health_listen else None
        self._server = grpc.aio.server(
            interceptors=[ErrorInterceptor(log, access), *interceptors], options=[*_options(), *options]
        )
        self._names = [service_name(servicer) for servicer in servicers]
        methods = Methods([*servicers, self._health])
        self._server.add_generic_rpc_handlers((methods,))
        self._console_listen = console_listen
        self._console_server: grpc.aio.Server | None = None
        if console_listen:
            if not console_listen.startswith("unix:"):
                raise SettingsError(f"{console_listen} must be unix:PATH: on TCP, consoles use the service's own port")
            interceptor = ErrorInterceptor(log, access, Role(console_role))
            self._console_server = grpc.aio.server(interceptors=[interceptor], options=_options())
            self._console_server.add_generic_rpc_handlers((methods,))
        serve_reflection([*self._names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name], self._server)

    async def start(self) -> None:
        self.port = await _listen_on(self._server, self._listen, self._certificates)
        if self._console_server is not None:
            await _listen_on(self._console_server, self._console_listen, None)
        for name in self._names:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        if self._health_server is not None:
            await self._health_server.start()
            self.health_port = self._health_server.port

    async def announce_shutdown(self) -> None:
        """Reports NOT_SERVING, so that no new clients come. Calls are still served until the stop."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        await self.announce_shutdown()
        await asyncio.gather(*(server.stop(grace_s) for server in self._serving()))
        if self._health_server is not None:
            await self._health_server.stop()

    def _serving(self) -> list[grpc.aio.Server]:
        return [self._server] if self._console_server is None else [self._server, self._console_server]


class HealthServer:
    """Serves health checks alone. So it needs no client certificate, even on TCP: a kubelet has none."""

    def __init__(self, listen: str, health: HealthServicer | None = None) -> None:
        self._listen = listen
        self._health = health or HealthServicer()
        self._server = grpc.aio.server(options=_options())
        self._server.add_generic_rpc_handlers((Methods([self._health]),))

    async def start(self) -> None:
        self.port = await _listen_on(self._server, self._listen, None)

    async def announce_shutdown(self) -> None:
        await self._health.enter_graceful_shutdown()

    async def stop(self) -> None:
        await self.announce_shutdown()
        await self._server.stop(None)


def _options() -> Options:
    # If enabled, two processes with the same port would each get some of its calls.
    return [*channel_options(), ("grpc.so_reuseport", 0)]


async def _listen_on(server: grpc.aio.Server, listen: str, certificates: Certificates | None) -> int:
    try:
        if certificates is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, _credentials(certificates))
    except RuntimeError as error:
        await server.stop(None)
        raise SettingsError(f"cannot listen on {listen}") from error
    await server.start()
    return port


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Requires client certificates. The files are checked again for each new connection."""
    used = certificates.current()

    def replaced() -> Any:
        """Returns the new configuration; None if unchanged."""
        nonlocal used
        before, used = used, certificates.current()
        return None if used is before else _configuration(used)

    return grpc.dynamic_ssl_server_credentials(_configuration(used), replaced, require_client_authentication=True)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.authority)


def private_listen(data: Path, service: str) -> str:
    """Returns the default listen address: a socket that only its own user can reach."""
    folder = data.resolve() / "run"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"unix:{folder / service}.sock"


def on_stop_signal(act: Callable[[], None]) -> None:
    """Calls it on SIGTERM or SIGINT, and nothing that was called before."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, act)
