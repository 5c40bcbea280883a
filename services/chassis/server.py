"""Runs a gRPC server: health, reflection, errors in one form, and an orderly end."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from grpc_status import rpc_status

from services.chassis.channel import channel_options
from services.chassis.errors import LegatoError, internal_error, to_status
from services.chassis.log import Log
from services.chassis.settings import SettingsError

# Registers one servicer and gives the full name of its service.
Registration = Callable[[grpc.aio.Server], str]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Lets no exception out but as a status that says its reason."""

    def __init__(self, log: Log) -> None:
        self._log = log

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is not None and handler.unary_unary is not None:
            return handler._replace(unary_unary=self._guard_unary(handler.unary_unary))
        if handler is not None and handler.stream_stream is not None:
            return handler._replace(stream_stream=self._guard_stream(handler.stream_stream))
        return handler

    def _guard_unary(self, behaviour: Any) -> Any:
        async def guarded(request: Any, context: Any) -> Any:
            try:
                return await behaviour(request, context)
            except (Exception, asyncio.CancelledError) as error:
                await self._abort(error, context)

        return guarded

    def _guard_stream(self, behaviour: Any) -> Any:
        async def guarded(requests: Any, context: Any) -> AsyncIterator[Any]:
            responses = behaviour(requests, context)
            try:
                async for response in responses:
                    yield response
            except (Exception, asyncio.CancelledError) as error:
                await self._abort(error, context)
            finally:
                await responses.aclose()

        return guarded

    async def _abort(self, error: BaseException, context: Any) -> None:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, asyncio.CancelledError):
            # Let out, it would leave the client waiting for ever.
            await context.abort(grpc.StatusCode.CANCELLED, "The call was cancelled.")
        if not isinstance(error, LegatoError):
            self._log.failure("rpc.failed", error)
            error = internal_error()
        await context.abort_with_status(rpc_status.to_status(to_status(error)))


class Server:
    def __init__(
        self, listen: str, registrations: Sequence[Registration], log: Log, *, insecure_tcp: bool = False
    ) -> None:
        if not listen.startswith("unix:") and not insecure_tcp:
            raise SettingsError(
                f"{listen} is reachable by others and not protected: listen on unix:PATH, or set LEGATO_INSECURE_TCP=1"
            )
        self._listen = listen
        self._health = HealthServicer()
        # Left on, two processes that were given one port would each get some of its calls.
        options = [*channel_options(), ("grpc.so_reuseport", 0)]
        self._server = grpc.aio.server(interceptors=[ErrorInterceptor(log)], options=options)
        self._names = ["", *(register(self._server) for register in registrations)]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            [*self._names[1:], health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME],
            self._server,
        )

    async def start(self) -> None:
        try:
            self.port = self._server.add_insecure_port(self._listen)
        except RuntimeError as error:
            await self._server.stop(None)
            raise SettingsError(f"cannot listen on {self._listen}") from error
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> None:
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.stop(grace_s)

    async def _set_health(self, status: Any) -> None:
        for name in self._names:
            await self._health.set(name, status)


def private_listen(data: Path, service: str) -> str:
    """Where a service listens unless it is told otherwise: a socket that only its own user can reach."""
    folder = data.resolve() / "run"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"unix:{folder / service}.sock"


async def wait_for_stop() -> None:
    """Returns when the process is asked to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
