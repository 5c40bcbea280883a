"""Typed clients of the services. They call on behalf of the signed-in user: see `Visit.auth` and its neighbours."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Protocol, TypeVar, cast

import grpc
import grpc.aio

from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.auth_pb2_grpc import KeyAdminServiceStub
from legato_protos.auth.v1.credentials_pb2_grpc import SignInServiceStub, UserServiceStub
from legato_protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from legato_protos.auth.v1.users_pb2_grpc import AuditServiceStub, UserAdminServiceStub
from legato_protos.metering.v1.chat_outcomes_pb2_grpc import ChatOutcomeServiceStub
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub, MeteringServiceStub
from legato_protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceStub
from legato_protos.metering.v1.reports_pb2_grpc import ReportServiceStub
from legato_protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from legato_protos.metering.v1.statements_pb2_grpc import StatementServiceStub
from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from legato_protos.router.v1.content_pb2_grpc import ContentServiceStub
from legato_protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from legato_protos.router.v1.router_pb2_grpc import RouteAdminServiceStub, RouterServiceStub
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import errors_of
from services.chassis.rpc.replica_channel import (
    ChannelReplica,
    Method,
    ReplicaChannel,
    RequestT,
    ResponseT,
    TokenMetadata,
)
from services.chassis.telemetry.log import Log

# A page is answered within about a second, whatever does not answer.
READ_TIMEOUT_S: Final = 1.0
# Files are written page by page, and a ledger of millions takes long to verify.
LONG_READ_TIMEOUT_S: Final = 120.0
# A change returns when every edge has it.
CHANGE_TIMEOUT_S: Final = 10.0
# An upload takes as long as its sender; the router limits how long it reads and indexes.
UPLOAD_TIMEOUT_S: Final = 900.0
ACCESS_TOKEN_METADATA: Final = "legato-access-token-bin"  # noqa: S105
# Methods that change nothing, by their names: where one replica gives no answer, another is asked. Any other method is
# called once: a change whose answer is lost may have been carried out.
READS: Final = re.compile(r"(Get|List|Resolve|Preview)\w+|AuditAccount")
# Methods that take no access token: they prove in their requests who calls.
WITHOUT_TOKEN: Final = re.compile(r".*\.SignInService/\w+|.*/ReceiveEvent")

AnswerT = TypeVar("AnswerT")
StubT = TypeVar("StubT")
CallT = TypeVar("CallT", bound=grpc.aio.Call)


class Caller(Protocol):
    """The user on whose behalf services are called."""

    @property
    def token(self) -> bytes: ...

    async def recent_token(self) -> bytes: ...


class _Page(Protocol):
    """A page of a list, with what leads to the next one; empty: it is the last."""

    @property
    def next_page_token(self) -> str: ...


class _PageRequest(Protocol):
    page_token: str


PageT = TypeVar("PageT", bound=_Page)


class ServiceCalls:
    """One service, as one user calls it: the stubs of its gRPC services take it for their channel."""

    def __init__(self, service: ReplicaChannel, caller: Caller, replica: ChannelReplica | None = None) -> None:
        """Calls the least loaded replica, or this one alone."""
        self._service = service
        self._caller = caller
        self._replica = replica

    def unary_unary(
        self,
        path: str,
        request_serializer: Callable[[RequestT], bytes],
        response_deserializer: Callable[[bytes], ResponseT],
        _registered_method: bool = False,
    ) -> Callable[..., Awaitable[ResponseT]]:
        method = Method(path, request_serializer, response_deserializer)

        async def call(
            request: RequestT, *, timeout: float | None = None, metadata: TokenMetadata | None = None
        ) -> ResponseT:
            if metadata is None and not WITHOUT_TOKEN.fullmatch(path):
                metadata = token_metadata(await self._caller.recent_token())
            is_read = READS.fullmatch(path.rpartition("/")[2]) is not None
            replicas = self._replicas()[: 2 if is_read else 1]
            timeout_s = (timeout or (READ_TIMEOUT_S if is_read else CHANGE_TIMEOUT_S)) / len(replicas)
            return await self._service.ask(replicas, method, request, timeout_s=timeout_s, metadata=metadata)

        return call

    def stream_stream(
        self,
        path: str,
        request_serializer: Callable[[RequestT], bytes],
        response_deserializer: Callable[[bytes], ResponseT],
        _registered_method: bool = False,
    ) -> "Callable[[], grpc.aio.StreamStreamCall[RequestT, ResponseT]]":
        def call() -> "grpc.aio.StreamStreamCall[RequestT, ResponseT]":
            replica = self._replicas()[0]
            method = replica.channel.stream_stream(path, request_serializer, response_deserializer)
            opened = method(timeout=UPLOAD_TIMEOUT_S, metadata=token_metadata(self._caller.token))
            replica.load += 1
            opened.add_done_callback(lambda _ended: replica.unload())
            return opened

        return call

    unary_stream = stream_stream

    def _replicas(self) -> list[ChannelReplica]:
        replicas = self._service.replicas.in_order() if self._replica is None else [self._replica]
        if not replicas:
            raise unavailable(self._service.title)
        return replicas


def _stub(make: Callable[[grpc.aio.Channel], StubT]) -> cached_property[StubT]:
    """An attribute of a client: the stub of one gRPC service, made when it is first used."""
    return cached_property(cast(Callable[[Any], StubT], make))


class AuthCalls(ServiceCalls):
    sign_in = _stub(SignInServiceStub)
    users = _stub(UserServiceStub)
    notices = _stub(NoticeServiceStub)
    accounts = _stub(AccountAdminServiceStub)
    key_admin = _stub(KeyAdminServiceStub)
    user_admin = _stub(UserAdminServiceStub)
    audit = _stub(AuditServiceStub)


class MeteringCalls(ServiceCalls):
    metering = _stub(MeteringServiceStub)
    statements = _stub(StatementServiceStub)
    spend_limits = _stub(SpendLimitServiceStub)
    notice_thresholds = _stub(NoticeThresholdServiceStub)
    credit_admin = _stub(CreditAdminServiceStub)
    reports = _stub(ReportServiceStub)
    chat_outcomes = _stub(ChatOutcomeServiceStub)


class RouterCalls(ServiceCalls):
    router = _stub(RouterServiceStub)
    route_admin = _stub(RouteAdminServiceStub)
    grounding = _stub(GroundingAdminServiceStub)
    content = _stub(ContentServiceStub)


class PaymentsCalls(ServiceCalls):
    payments = _stub(PaymentServiceStub)


def token_metadata(access_token: bytes) -> TokenMetadata:
    return ((ACCESS_TOKEN_METADATA, access_token),)


@contextmanager
def open_stream(title: str, call: CallT) -> Iterator[CallT]:
    """Translates the errors of a call in both directions, which ends with the block."""
    try:
        with errors_of(title):
            yield call
    finally:
        call.cancel()


async def if_available(answer: Awaitable[AnswerT]) -> AnswerT | None:
    """Returns the answer of a service; None if the service does not answer."""
    try:
        return await answer
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return None


async def every_page(list_page: Callable[..., Awaitable[PageT]], request: _PageRequest) -> AsyncIterator[PageT]:
    """Yields the pages of a list, from the request's own page on, for a file: it may take long."""
    while True:
        page = await list_page(request, timeout=LONG_READ_TIMEOUT_S)
        yield page
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


class Services:
    def __init__(
        self,
        addresses: Callable[[str], str],
        certificates: Certificates | None,
        log: Log,
        payments_address: str = "",
    ) -> None:
        """Takes the `addresses` of a service by its name, and that of payments, if there are any."""

        def service(title: str, name: str, address: str) -> ReplicaChannel:
            return ReplicaChannel(title, name, address, certificates, log)

        self.auth = service("Sign-in", "auth", addresses("auth"))
        self.metering = service("The ledger", "metering", addresses("metering"))
        self.router = service("The chat service", "router", addresses("router"))
        self.payments = service("Payments", "payments", payments_address) if payments_address else None
        self._by_name = {"auth": self.auth, "metering": self.metering, "router": self.router}
        if self.payments is not None:
            self._by_name["payments"] = self.payments

    async def start(self) -> None:
        for service in self._by_name.values():
            await service.replicas.start()

    async def close(self) -> None:
        for service in self._by_name.values():
            await service.replicas.close()

    def usable(self) -> dict[str, int]:
        """Returns the number of usable replicas by service."""
        return {name: service.replicas.count_usable() for name, service in self._by_name.items()}
