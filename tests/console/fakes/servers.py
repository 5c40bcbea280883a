"""Serves the services of a console: real ones, and fakes of the others."""

import contextlib
from collections.abc import Callable
from typing import Any

import grpc.aio

from protos.auth.v1 import auth_pb2_grpc, credentials_pb2_grpc, notices_pb2_grpc, users_pb2_grpc
from services.chassis.access_tokens import METADATA_KEY
from services.chassis.errors import LegatoError
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.callers import Role
from services.chassis.rpc.interceptor import ErrorInterceptor
from services.chassis.rpc.server import register as add_servicer
from services.chassis.telemetry.log import Log
from tests.console.clock import NOW_US
from tests.console.fakes.keys import VERIFIER
from tests.console.fakes.operator_services import OperatorFakes
from tests.console.fakes.services import Fakes, is_for_operators

SERVICERS: dict[str, tuple[Any, ...]] = {
    "auth": (
        users_pb2_grpc.SignInServiceServicer,
        users_pb2_grpc.UserServiceServicer,
        users_pb2_grpc.AccountServiceServicer,
        users_pb2_grpc.UserAdminServiceServicer,
        users_pb2_grpc.AuditServiceServicer,
        auth_pb2_grpc.AccountAdminServiceServicer,
        auth_pb2_grpc.KeyAdminServiceServicer,
        credentials_pb2_grpc.SignInMethodServiceServicer,
        credentials_pb2_grpc.CredentialServiceServicer,
        notices_pb2_grpc.NoticeServiceServicer,
    ),
}


def is_valid(token: bytes) -> bool:
    with contextlib.suppress(LegatoError):
        return bool(VERIFIER.verify(token, NOW_US).user_id)
    return False


def servicer(kind: Any, name: str, fakes: Fakes) -> Any:
    """A servicer of the generated class `kind`, whose methods are those of `fakes`."""

    def method_named(method: str) -> Any:
        async def answer(self: Any, request: Any, context: Any) -> Any:
            metadata = dict(context.invocation_metadata() or ())
            return fakes.answer(f"{name}.{method}", request, is_valid(metadata.get(METADATA_KEY, b"")))

        return answer

    fake = OperatorFakes if is_for_operators(name) else Fakes
    methods = [
        method
        for method in vars(kind)
        if not method.startswith("_") and (hasattr(fake, method) or hasattr(Fakes, method))
    ]
    return type(f"Fake{name}", (kind,), {method: method_named(method) for method in methods})()


class RealServicers(grpc.GenericRpcHandler):
    """Answers with servicers of the product. After a reset they are made anew: none knows what another test wrote."""

    def __init__(self, fakes: Fakes, make: Callable[[], list[object]]) -> None:
        self._fakes = fakes
        self._make = make
        self._made_for: object = None
        self._handlers: dict[str, Any] = {}

    def service(self, handler_call_details: Any) -> Any:
        if self._made_for is not self._fakes.calls:
            self._made_for, self._handlers = self._fakes.calls, {}
            for each in self._make():
                add_servicer(each, self)  # type: ignore[arg-type]
        return self._handlers.get(handler_call_details.method)

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Takes the methods of a servicer, as a server does."""
        for method, handler in handlers.items():
            name = f"{service.rpartition('.')[2]}.{method}"
            if handler.stream_stream is not None:
                self._handlers[f"/{service}/{method}"] = handler._replace(
                    stream_stream=self._noted_stream(name, handler.stream_stream)
                )
            elif handler.unary_unary is not None:
                self._handlers[f"/{service}/{method}"] = handler._replace(
                    unary_unary=self._noted(name, handler.unary_unary)
                )

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Does nothing: these are the same methods once more."""

    def _noted(self, name: str, behaviour: Any) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self._fakes.note(name, request)
            return self._fakes.told(await behaviour(request, context))

        return answer

    def _noted_stream(self, name: str, behaviour: Any) -> Any:
        async def noted(requests: Any) -> Any:
            async for request in requests:
                self._fakes.requests.append(request)
                yield request

        async def answer(requests: Any, context: Any) -> Any:
            self._fakes.calls.append(name)
            try:
                if name in self._fakes.fail:
                    raise self._fakes.fail[name]
                async for response in behaviour(noted(requests), context):
                    yield response
            finally:
                self._fakes.ended_streams += 1

        return answer


def new_server(service: str, fakes: Fakes, log: Log) -> grpc.aio.Server:
    """Returns a server for consoles. Auth is a fake."""
    real = {
        "metering": fakes.metering.servicers,
        "payments": fakes.payments.servicers,
        "router": fakes.router.servicers,
    }.get(service)
    access = None if real is None else AccessCheck(VERIFIER, lambda: NOW_US)
    role = None if real is None else Role.OPERATOR_CONSOLE
    server = grpc.aio.server(interceptors=[ErrorInterceptor(log, access, role)])
    if real is not None:
        server.add_generic_rpc_handlers((RealServicers(fakes, lambda: real(log)),))
    for kind in SERVICERS.get(service, ()):
        add_servicer(servicer(kind, kind.__name__.removesuffix("Servicer"), fakes), server)
    return server
