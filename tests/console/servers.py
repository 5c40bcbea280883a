"""Serves the services of a console, and keeps which RPCs arrived."""

from collections.abc import Callable
from typing import Any

import grpc.aio

from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.callers import Role
from services.chassis.rpc.interceptor import ErrorInterceptor
from services.chassis.rpc.methods import Methods
from services.chassis.telemetry.log import Log
from tests.console.auth import VERIFIER
from tests.console.backends import Backends
from tests.console.clock import NOW_US


class NotedServicers(grpc.GenericRpcHandler):
    """Answers with servicers of the product. After a reset they are made anew: none knows what another test wrote."""

    def __init__(self, backends: Backends, make: Callable[[], list[object]]) -> None:
        self._backends = backends
        self._make = make
        self._made_for: object = None
        self._handlers: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        if self._made_for is not self._backends.generation:
            self._made_for, self._handlers = self._backends.generation, {}
            for path, handler in Methods(self._make()).handlers.items():
                self._handlers[path] = self._noted_handler(path, handler)
        return self._handlers.get(handler_call_details.method)

    def _noted_handler(self, path: str, handler: Any) -> Any:
        service, method = path.removeprefix("/").split("/")
        name = f"{service.rpartition('.')[2]}.{method}"
        if handler.stream_stream is not None:
            return handler._replace(stream_stream=self._noted_stream(name, handler.stream_stream))
        return handler._replace(unary_unary=self._noted(name, handler.unary_unary))

    def _noted(self, name: str, behaviour: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self._backends.note(name, request)
            return self._backends.told(await behaviour(request, context))

        return answer

    def _noted_stream(self, name: str, behaviour: Any) -> Any:
        async def noted(requests: Any) -> Any:
            async for request in requests:
                self._backends.requests.append(request)
                yield request

        async def answer(requests: Any, context: Any) -> Any:
            self._backends.calls.append(name)
            try:
                if name in self._backends.fail:
                    raise self._backends.fail[name]
                async for response in behaviour(noted(requests), context):
                    yield response
            finally:
                self._backends.ended_streams += 1

        return answer


def new_spend_limits(backends: Backends, log: Log) -> grpc.aio.Server:
    """Returns metering for auth, which has it limit what keys may spend."""
    server = grpc.aio.server(interceptors=[ErrorInterceptor(log)])
    server.add_generic_rpc_handlers((NotedServicers(backends, lambda: [backends.metering.spend_limits(log)]),))
    return server


def new_server(service: str, backends: Backends, log: Log) -> grpc.aio.Server:
    """Returns a server for the console of operators."""
    real = getattr(backends, service)
    confirm = backends.auth.confirm if service == "auth" else None
    access = AccessCheck(VERIFIER, lambda: NOW_US, confirm)
    server = grpc.aio.server(interceptors=[ErrorInterceptor(log, access, Role.OPERATOR_CONSOLE)])
    server.add_generic_rpc_handlers((NotedServicers(backends, lambda: real.servicers(log)),))
    return server
