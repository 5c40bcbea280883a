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
from tests.console.fakes.keys import ACCESS_TOKEN
from tests.console.fakes.operator_services import OperatorFakes
from tests.console.fakes.services import Fakes, is_for_operators


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
    if service == "auth":
        users_pb2_grpc.add_SignInServiceServicer_to_server(
            servicer(users_pb2_grpc.SignInServiceServicer, "SignInService", fakes), server
        )
        users_pb2_grpc.add_UserServiceServicer_to_server(
            servicer(users_pb2_grpc.UserServiceServicer, "UserService", fakes), server
        )
        users_pb2_grpc.add_AccountServiceServicer_to_server(
            servicer(users_pb2_grpc.AccountServiceServicer, "AccountService", fakes), server
        )
        users_pb2_grpc.add_UserAdminServiceServicer_to_server(
            servicer(users_pb2_grpc.UserAdminServiceServicer, "UserAdminService", fakes), server
        )
        users_pb2_grpc.add_AuditServiceServicer_to_server(
            servicer(users_pb2_grpc.AuditServiceServicer, "AuditService", fakes), server
        )
        auth_pb2_grpc.add_AccountAdminServiceServicer_to_server(
            servicer(auth_pb2_grpc.AccountAdminServiceServicer, "AccountAdminService", fakes), server
        )
        auth_pb2_grpc.add_KeyAdminServiceServicer_to_server(
            servicer(auth_pb2_grpc.KeyAdminServiceServicer, "KeyAdminService", fakes), server
        )
        credentials_pb2_grpc.add_SignInMethodServiceServicer_to_server(
            servicer(credentials_pb2_grpc.SignInMethodServiceServicer, "SignInMethodService", fakes), server
        )
        credentials_pb2_grpc.add_CredentialServiceServicer_to_server(
            servicer(credentials_pb2_grpc.CredentialServiceServicer, "CredentialService", fakes), server
        )
        notices_pb2_grpc.add_NoticeServiceServicer_to_server(
            servicer(notices_pb2_grpc.NoticeServiceServicer, "NoticeService", fakes), server
        )
    elif service == "metering":
        metering_notices_pb2_grpc.add_NoticeThresholdServiceServicer_to_server(
            servicer(metering_notices_pb2_grpc.NoticeThresholdServiceServicer, "NoticeThresholdService", fakes), server
        )
        metering_pb2_grpc.add_CreditAdminServiceServicer_to_server(
            servicer(metering_pb2_grpc.CreditAdminServiceServicer, "CreditAdminService", fakes), server
        )
        metering_pb2_grpc.add_MeteringServiceServicer_to_server(
            servicer(metering_pb2_grpc.MeteringServiceServicer, "MeteringService", fakes), server
        )
        spend_limits_pb2_grpc.add_SpendLimitServiceServicer_to_server(
            servicer(spend_limits_pb2_grpc.SpendLimitServiceServicer, "SpendLimitService", fakes), server
        )
        statements_pb2_grpc.add_StatementServiceServicer_to_server(
            servicer(statements_pb2_grpc.StatementServiceServicer, "StatementService", fakes), server
        )
    elif service == "payments":
        payments_pb2_grpc.add_PaymentServiceServicer_to_server(
            servicer(payments_pb2_grpc.PaymentServiceServicer, "PaymentService", fakes), server
        )
    else:
        router_pb2_grpc.add_RouteAdminServiceServicer_to_server(
            servicer(router_pb2_grpc.RouteAdminServiceServicer, "RouteAdminService", fakes), server
        )
        router_pb2_grpc.add_RouterServiceServicer_to_server(
            servicer(router_pb2_grpc.RouterServiceServicer, "RouterService", fakes), server
        )
        grounding_pb2_grpc.add_GroundingAdminServiceServicer_to_server(
            servicer(grounding_pb2_grpc.GroundingAdminServiceServicer, "GroundingAdminService", fakes), server
        )
