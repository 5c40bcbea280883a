"""Serves the fakes by gRPC, as the services they stand for."""

import asyncio
import inspect
from typing import Any

import grpc.aio

from protos.auth.v1 import auth_pb2_grpc, credentials_pb2_grpc, notices_pb2_grpc, users_pb2_grpc
from protos.metering.v1 import metering_pb2_grpc, spend_limits_pb2_grpc, statements_pb2_grpc
from protos.metering.v1 import notices_pb2_grpc as metering_notices_pb2_grpc
from protos.payments.v1 import payments_pb2_grpc
from protos.router.v1 import grounding_pb2_grpc, router_pb2_grpc
from services.chassis.rpc.server import register as add_servicer
from tests.console.fakes.keys import ACCESS_TOKEN
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
    "metering": (
        metering_notices_pb2_grpc.NoticeThresholdServiceServicer,
        metering_pb2_grpc.CreditAdminServiceServicer,
        metering_pb2_grpc.MeteringServiceServicer,
        spend_limits_pb2_grpc.SpendLimitServiceServicer,
        statements_pb2_grpc.StatementServiceServicer,
    ),
    "payments": (payments_pb2_grpc.PaymentServiceServicer,),
    "router": (
        router_pb2_grpc.RouteAdminServiceServicer,
        router_pb2_grpc.RouterServiceServicer,
        grounding_pb2_grpc.GroundingAdminServiceServicer,
    ),
}


def servicer(kind: Any, name: str, fakes: Fakes) -> Any:
    """A servicer of the generated class `kind`, whose methods are those of `fakes`."""

    def method_named(method: str) -> Any:
        async def answer(self: Any, request: Any, context: Any) -> Any:
            metadata = dict(context.invocation_metadata() or ())
            return fakes.answer(f"{name}.{method}", request, metadata.get("legato-access-token-bin") == ACCESS_TOKEN)

        async def answer_stream(self: Any, requests: Any, context: Any) -> Any:
            fakes.calls.append(f"{name}.{method}")
            try:
                async for response in getattr(fakes, method)(requests):
                    yield response
            except (asyncio.CancelledError, GeneratorExit):
                fakes.cancelled += 1
                raise

        return answer_stream if inspect.isasyncgenfunction(getattr(fake, method, None)) else answer

    fake = OperatorFakes if is_for_operators(name) else Fakes
    methods = [
        method
        for method in vars(kind)
        if not method.startswith("_") and (hasattr(fake, method) or hasattr(Fakes, method))
    ]
    return type(f"Fake{name}", (kind,), {method: method_named(method) for method in methods})()


def register(server: grpc.aio.Server, service: str, fakes: Fakes) -> None:
    for kind in SERVICERS[service]:
        add_servicer(servicer(kind, kind.__name__.removesuffix("Servicer"), fakes), server)
