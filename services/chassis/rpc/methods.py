"""The methods that a gRPC server offers, by their paths.

gRPC for asyncio waits for the next call of each method that is registered with a server, and begins all of these waits
anew with every call. So none is registered: a call asks for its method here.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import grpc

from services.chassis.rpc.former_names import former_name

Handlers = Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]


@runtime_checkable
class OwnHandlers(Protocol):
    """A servicer that has handlers of its own for some methods, which replace the generated ones."""

    def own_handlers(self) -> Handlers: ...


class Methods(grpc.GenericRpcHandler):
    def __init__(self, servicers: Iterable[object]) -> None:
        """Takes servicers, each of one service. Methods have the former name of their service, too."""
        self.handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for servicer in servicers:
            name = service_name(servicer)
            handlers = {**_generated_handlers(servicer)}
            if isinstance(servicer, OwnHandlers):
                handlers |= servicer.own_handlers()
            for service in filter(None, (name, former_name(name))):
                self.handlers |= {f"/{service}/{method}": handler for method, handler in handlers.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        return self.handlers.get(handler_call_details.method)


def service_name(servicer: object) -> str:
    """Returns the full name of a servicer's service, which follows from its generated base class."""
    base = _generated_base(servicer)
    messages = sys.modules[base.__module__.removesuffix("_grpc")]
    return str(messages.DESCRIPTOR.services_by_name[base.__name__.removesuffix("Servicer")].full_name)


def _generated_base(servicer: object) -> type:
    return next(kind for kind in type(servicer).__mro__ if kind.__module__.endswith("_pb2_grpc"))


class _Taken:
    """Stands for a server where generated code adds the methods of a service."""

    def __init__(self) -> None:
        self.handlers: Handlers = {}

    def add_registered_method_handlers(self, service: str, handlers: Handlers) -> None:
        self.handlers = handlers

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Does nothing: these are the same methods once more."""


def _generated_handlers(servicer: object) -> Handlers:
    base, taken = _generated_base(servicer), _Taken()
    getattr(sys.modules[base.__module__], f"add_{base.__name__}_to_server")(servicer, taken)
    return taken.handlers
