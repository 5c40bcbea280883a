"""Calls each method of each service by each identity, over TCP with certificates."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from legato_protos.auth.v1 import accounts_pb2, auth_pb2, credentials_pb2, notices_pb2, users_pb2
from legato_protos.chat.v1 import chat_pb2
from legato_protos.metering.v1 import (
    chat_outcomes_pb2,
    metering_pb2,
    model_shares_pb2,
    outbox_pb2,
    payment_booking_pb2,
    reports_pb2,
    spend_limits_pb2,
    staged_files_pb2,
    statements_pb2,
)
from legato_protos.metering.v1 import notices_pb2 as metering_notices_pb2
from legato_protos.payments.v1 import payments_pb2
from legato_protos.router.v1 import grounding_pb2, router_pb2
from legato_protos.type.v1 import exchange_pb2
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.methods import UnaryMethod
from services.chassis.exchange.server import ExchangeServer
from services.chassis.rpc.access_check import rule_of
from services.chassis.rpc.callers import Role, role_of, roles_for
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.chassis.rpc.expected_callers import CALLER, CONSOLES, EDGE, EXPECTED, NAMES
from tests.support.certificates import Authority

STREAMS = ("Watch", "Chat", "Stream", "Exchange", "AddAttachment", "ServerReflectionInfo")
# What also travels as an item.
ITEMS = {
    "legato.router.v1.RouterService": ["Chat"],
    "legato.metering.v1.MeteringService": [
        "Admit",
        "Correct",
        "Reserve",
        "Extend",
        "Settle",
        "Void",
        "Checkpoint",
        "ReportFailures",
    ],
}
OURS = [
    service
    for file in (
        auth_pb2,
        accounts_pb2,
        chat_pb2,
        chat_outcomes_pb2,
        users_pb2,
        credentials_pb2,
        notices_pb2,
        metering_notices_pb2,
        model_shares_pb2,
        outbox_pb2,
        router_pb2,
        grounding_pb2,
        metering_pb2,
        payment_booking_pb2,
        payments_pb2,
        reports_pb2,
        spend_limits_pb2,
        staged_files_pb2,
        statements_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
]
SERVED = [f"/{service.full_name}/{method.name}" for service in OURS for method in service.methods]
SERVED += [f"/grpc.health.v1.Health/{method}" for method in ("Check", "List", "Watch")]
SERVED += [f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")]
ALLOWED = {role: frozenset(method for method in SERVED if role in roles_for(method)) for role in Role}
RULES = {method: rule for method in SERVED if (rule := rule_of(method)) is not None}


async def answer(request: Any, context: Any = None) -> Empty:
    return Empty()


def anything(service: Any, log: Log) -> object:
    """A servicer of the service, whose answers are empty; its exchange is a real one."""

    def behaviour(method: Any) -> Any:
        response: Any = GetMessageClass(method.output_type)

        async def answer_call(self: Any, request: Any, context: Any) -> Any:
            return response()

        async def answer_in_pieces(self: Any, request: Any, context: Any) -> AsyncIterator[Any]:
            yield response()

        async def answer_stream(self: Any, requests: Any, context: Any) -> AsyncIterator[Any]:
            async for _ in requests:
                yield response()

        async def exchange(self: Any, requests: Any, context: Any) -> AsyncIterator[Any]:
            items = {name: UnaryMethod(Empty, answer) for name in ITEMS.get(service.full_name, ())}
            async for sent in ExchangeServer(service.full_name, items, response, log).serve(requests):
                yield sent

        if method.name == "Exchange":
            return exchange
        if method.server_streaming and not method.client_streaming:
            return answer_in_pieces
        return answer_stream if method.client_streaming else answer_call

    path = service.file.name.removesuffix(".proto").replace("legato/", "legato_protos/", 1)
    generated = importlib.import_module(path.replace("/", ".") + "_pb2_grpc")
    methods = {method.name: behaviour(method) for method in service.methods}
    return type(service.name, (getattr(generated, f"{service.name}Servicer"),), methods)()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def address(authority: Authority, log: Log) -> AsyncIterator[str]:
    """Serves every service there is, in one process."""
    servicers = [anything(service, log) for service in OURS]
    server = RpcServer("127.0.0.1:0", servicers, log, authority.certificates("auth", log))
    await server.start()
    async with asyncio.timeout(60):
        yield f"127.0.0.1:{server.port}"
    await server.stop(0)


async def ask(channel: grpc.aio.Channel, service: str, method: str) -> LegatoError | None:
    """Why it was refused; None: it was not."""
    path, to_bytes = f"/{service}/{method}", lambda message: message.SerializeToString()
    try:
        if method in STREAMS:
            # One message at once: if the refusal came before a message of its own, gRPC would tell of the failed write.
            call = channel.unary_stream(path, to_bytes, bytes)(first_message(method))
            await call.read()
            call.cancel()
        else:
            await channel.unary_unary(path, to_bytes, bytes)(health_pb2.HealthCheckRequest())
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error, service)
    return None


def first_message(method: str) -> Any:
    if method == "Exchange":
        return router_pb2.ExchangeRequest(items=[exchange_pb2.Item(kind=exchange_pb2.ITEM_KIND_ALIVE)])
    if method == "ServerReflectionInfo":
        return reflection_pb2.ServerReflectionRequest(list_services="")
    return Empty()


async def open_item(channel: grpc.aio.Channel, service: str, method: str) -> exchange_pb2.Item:
    opening = exchange_pb2.Item(call_id=1, kind=exchange_pb2.ITEM_KIND_OPEN, method=method)
    call = channel.stream_stream(
        f"/{service}/Exchange", router_pb2.ExchangeRequest.SerializeToString, router_pb2.ExchangeResponse.FromString
    )(iter([router_pb2.ExchangeRequest(items=[opening])]))
    response: Any = await call.read()
    call.cancel()
    [item] = response.items
    return item  # type: ignore[no-any-return]


def test_expected_names_every_method_that_there_is() -> None:
    there = {service.full_name: {method.name for method in service.methods} for service in OURS}
    assert {name: set(methods) for name, methods in EXPECTED.items() if name.startswith("legato.")} == there


@pytest.mark.parametrize("role", [Role.CONSOLE, Role.OPERATOR_CONSOLE])
def test_consoles_need_a_token_for_all_but_signing_in_signed_events_and_health(role: Role) -> None:
    without = set(ALLOWED[role] - set(RULES))
    without.remove("/legato.payments.v1.PaymentService/ReceiveEvent")
    assert {method.split("/")[1] for method in without} == {
        "legato.auth.v1.SignInService",
        "grpc.health.v1.Health",
    }


def test_every_rule_is_of_a_method_that_a_console_may_call() -> None:
    assert set(RULES) <= ALLOWED[Role.OPERATOR_CONSOLE]
    public = {method for method in RULES if not RULES[method].operator}
    assert public <= ALLOWED[Role.CONSOLE]
    assert not ALLOWED[Role.CONSOLE] & (set(RULES) - public)


def test_whatever_needs_a_role_in_an_account_says_in_which() -> None:
    for service in OURS:
        for method in service.methods:
            rule = RULES.get(f"/{service.full_name}/{method.name}")
            if rule is not None and rule.role:
                assert "account_id" in method.input_type.fields_by_name, method.full_name


def test_every_method_has_callers_and_one_that_is_not_there_has_none() -> None:
    assert set().union(*ALLOWED.values()) == set(SERVED)
    assert roles_for("/legato.auth.v1.AuthService/Missing") == frozenset()


@pytest.mark.parametrize("name", NAMES)
async def test_each_identity_may_call_what_is_its_own_and_nothing_else(
    authority: Authority, address: str, log: Log, name: str
) -> None:
    async with open_channel(address, authority.certificates(name, log).current(), "auth") as channel:
        for service, methods in EXPECTED.items():
            for method, allowed in methods.items():
                expected = None if name in allowed else Reason.CALLER_NOT_ALLOWED
                if name in CONSOLES & allowed and f"/{service}/{method}" in RULES:
                    # It may, for a user whose token it has; it has none.
                    expected = Reason.ACCESS_TOKEN_INVALID
                refused = await ask(channel, service, method)
                assert (refused and refused.reason) is expected, f"{service}/{method}"


async def test_program_that_asks_for_what_is_the_edges_is_named_and_told_what_to_call(
    authority: Authority, address: str, log: Log, log_text: Callable[[], str]
) -> None:
    async with open_channel(address, authority.certificates(CALLER, log).current(), "auth") as channel:
        refused = await ask(channel, "legato.metering.v1.MeteringService", "Settle")
    assert refused is not None
    assert refused.wire.grpc_code is grpc.StatusCode.PERMISSION_DENIED
    assert "legato.chat.v1.ChatService" in refused.message
    [line] = [line for line in log_text().splitlines() if "caller.not_allowed" in line]
    assert '"name":"spiffe://legato/caller/reports"' in line
    assert '"reason":"/legato.metering.v1.MeteringService/Settle"' in line


async def test_items_of_an_exchange_are_for_those_who_may_open_it(authority: Authority, address: str, log: Log) -> None:
    async with open_channel(address, authority.certificates("edge", log).current(), "auth") as channel:
        for service, methods in ITEMS.items():
            for method in methods:
                assert (await open_item(channel, service, method)).kind == exchange_pb2.ITEM_KIND_END, method
                assert EXPECTED[service][method] == EXPECTED[service]["Exchange"] == EDGE


def test_metering_may_call_nothing() -> None:
    assert ALLOWED[Role.METERING] == frozenset()


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (["spiffe://legato/edge"], Role.EDGE),
        (["edge.example.org", "spiffe://legato/admin"], Role.ADMIN),
        (["spiffe://legato/caller/reports"], Role.CALLER),
        (["spiffe://legato/caller"], None),
        (["spiffe://legato/caller/"], None),
        (["spiffe://legato/edge/more"], None),
        (["spiffe://legato/Edge"], None),
        (["spiffe://elsewhere/edge"], None),
        (["edge"], None),
        (["spiffe://legato/edge", "spiffe://legato/admin"], None),
        ([], None),
    ],
)
def test_certificate_says_who_its_holder_is(names: list[str], role: Role | None) -> None:
    assert role_of(names) is role


async def test_owner_on_a_unix_socket_may_do_everything(socket_folder: Path, log: Log) -> None:
    address = f"unix:{socket_folder}/all.sock"
    server = RpcServer(address, [anything(service, log) for service in OURS], log)
    await server.start()
    async with asyncio.timeout(60), open_channel(address) as channel:
        for service, methods in EXPECTED.items():
            for method in methods:
                assert await ask(channel, service, method) is None, f"{service}/{method}"
    await server.stop(0)
