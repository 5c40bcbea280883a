"""Calls the services on behalf of whoever is signed in."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from protos.auth.v1.auth_pb2_grpc import AccountAdminServiceStub, KeyAdminServiceStub
from protos.auth.v1.credentials_pb2_grpc import CredentialServiceStub, SignInMethodServiceStub
from protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from protos.auth.v1.users_pb2_grpc import AccountServiceStub, SignInServiceStub, UserAdminServiceStub, UserServiceStub
from protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub, MeteringServiceStub
from protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceStub
from protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceStub
from protos.metering.v1.statements_pb2_grpc import StatementServiceStub
from protos.payments.v1.payments_pb2_grpc import PaymentServiceStub
from protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceStub
from protos.router.v1.router_pb2_grpc import RouteAdminServiceStub, RouterServiceStub
from services.chassis.errors import LegatoError, unavailable
from services.chassis.rpc.certificates import Certificates
from services.chassis.rpc.channel import ChannelHolder, from_rpc_error, was_lost
from services.chassis.rpc.replicas import Replicas
from services.chassis.telemetry.log import Log

if TYPE_CHECKING:
    from protos.auth.v1.auth_pb2_grpc import AccountAdminServiceAsyncStub, KeyAdminServiceAsyncStub
    from protos.auth.v1.credentials_pb2_grpc import CredentialServiceAsyncStub, SignInMethodServiceAsyncStub
    from protos.auth.v1.notices_pb2_grpc import NoticeServiceAsyncStub
    from protos.auth.v1.users_pb2_grpc import (
        AccountServiceAsyncStub,
        SignInServiceAsyncStub,
        UserAdminServiceAsyncStub,
        UserServiceAsyncStub,
    )
    from protos.metering.v1.metering_pb2_grpc import CreditAdminServiceAsyncStub, MeteringServiceAsyncStub
    from protos.metering.v1.notices_pb2_grpc import NoticeThresholdServiceAsyncStub
    from protos.metering.v1.spend_limits_pb2_grpc import SpendLimitServiceAsyncStub
    from protos.metering.v1.statements_pb2_grpc import StatementServiceAsyncStub
    from protos.payments.v1.payments_pb2_grpc import PaymentServiceAsyncStub
    from protos.router.v1.grounding_pb2_grpc import GroundingAdminServiceAsyncStub
    from protos.router.v1.router_pb2_grpc import RouteAdminServiceAsyncStub, RouterServiceAsyncStub

# A page is answered within about a second, whatever does not answer.
READ_TIMEOUT_S: Final = 1.0
# Files are written page by page, and a ledger of millions takes long to verify.
LONG_READ_TIMEOUT_S: Final = 120.0
# A change returns when every edge has it.
CHANGE_TIMEOUT_S: Final = 10.0
# An upload takes as long as its sender; the router limits how long it reads and indexes.
UPLOAD_TIMEOUT_S: Final = 900.0
ACCESS_TOKEN_METADATA: Final = "legato-access-token-bin"  # noqa: S105

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class AuthStubs:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.sign_in: SignInServiceAsyncStub = SignInServiceStub(channel)
        self.users: UserServiceAsyncStub = UserServiceStub(channel)
        self.methods: SignInMethodServiceAsyncStub = SignInMethodServiceStub(channel)
        self.credentials: CredentialServiceAsyncStub = CredentialServiceStub(channel)
        self.notices: NoticeServiceAsyncStub = NoticeServiceStub(channel)
        self.accounts: AccountServiceAsyncStub = AccountServiceStub(channel)
        self.account_admin: AccountAdminServiceAsyncStub = AccountAdminServiceStub(channel)
        self.key_admin: KeyAdminServiceAsyncStub = KeyAdminServiceStub(channel)
        self.user_admin: UserAdminServiceAsyncStub = UserAdminServiceStub(channel)


class MeteringStubs:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.metering: MeteringServiceAsyncStub = MeteringServiceStub(channel)
        self.statements: StatementServiceAsyncStub = StatementServiceStub(channel)
        self.spend_limits: SpendLimitServiceAsyncStub = SpendLimitServiceStub(channel)
        self.notice_thresholds: NoticeThresholdServiceAsyncStub = NoticeThresholdServiceStub(channel)
        self.credit_admin: CreditAdminServiceAsyncStub = CreditAdminServiceStub(channel)


class RouterStubs:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.router: RouterServiceAsyncStub = RouterServiceStub(channel)
        self.route_admin: RouteAdminServiceAsyncStub = RouteAdminServiceStub(channel)
        self.grounding: GroundingAdminServiceAsyncStub = GroundingAdminServiceStub(channel)


class PaymentStubs:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.payments: PaymentServiceAsyncStub = PaymentServiceStub(channel)


class _Stubs(Protocol):
    @property
    def channel(self) -> grpc.aio.Channel: ...


StubsT = TypeVar("StubsT", bound=_Stubs)


class ServiceReplica(Generic[StubsT]):
    def __init__(
        self,
        address: str,
        server_name: str,
        make_stubs: Callable[[grpc.aio.Channel], StubsT],
        certificates: Certificates | None,
    ) -> None:
        self.address = address
        self._connection = ChannelHolder(address, server_name, make_stubs, certificates)
        self.load = 0

    @property
    def stubs(self) -> StubsT:
        return self._connection.stub

    @property
    def usable(self) -> bool:
        return self.stubs.channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.TRANSIENT_FAILURE

    @property
    def is_leaving(self) -> bool:
        return False

    async def close(self) -> None:
        await self._connection.close()


class ServiceClient(Generic[StubsT]):
    """The replicas of one service."""

    def __init__(
        self,
        name: str,
        server_name: str,
        addresses: str,
        make_stubs: Callable[[grpc.aio.Channel], StubsT],
        certificates: Certificates | None,
        log: Log,
    ) -> None:
        self._name = name
        self._replicas: Replicas[ServiceReplica[StubsT]] = Replicas(
            name, addresses, lambda address: ServiceReplica(address, server_name, make_stubs, certificates), log
        )

    async def start(self) -> None:
        await self._replicas.start()

    async def close(self) -> None:
        await self._replicas.close()

    def count_usable(self) -> int:
        return self._replicas.count_usable()

    async def read(
        self,
        method: "Callable[[StubsT], grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]]",
        request: RequestT,
        access_token: bytes = b"",
        total_timeout_s: float = READ_TIMEOUT_S,
    ) -> ResponseT:
        """Makes a call that changes nothing; where one replica gives no answer, another is asked."""
        replicas = self._replicas.in_order()[:2]
        timeout_s = total_timeout_s / max(1, len(replicas))
        for replica in replicas[:-1]:
            try:
                return await _call(replica, method, request, access_token, timeout_s)
            except grpc.RpcError as error:
                if not was_lost(error):
                    raise from_rpc_error(error, self._name) from None
        return await self._ask_one(replicas[-1:], method, request, access_token, timeout_s)

    @contextlib.asynccontextmanager
    async def upload(
        self,
        method: "Callable[[StubsT], grpc.aio.StreamStreamMultiCallable[RequestT, ResponseT]]",
        access_token: bytes,
    ) -> "AsyncIterator[grpc.aio.StreamStreamCall[RequestT, ResponseT]]":
        """Opens a call in both directions, which ends with the context."""
        replicas = self._replicas.in_order()[:1]
        if not replicas:
            raise unavailable(self._name)
        replica = replicas[0]
        replica.load += 1
        call = method(replica.stubs)(timeout=UPLOAD_TIMEOUT_S, metadata=_metadata(access_token))
        try:
            yield call
        except grpc.RpcError as error:
            raise from_rpc_error(error, self._name) from None
        finally:
            call.cancel()
            replica.load -= 1

    async def change(
        self,
        method: "Callable[[StubsT], grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]]",
        request: RequestT,
        access_token: bytes = b"",
        timeout_s: float = CHANGE_TIMEOUT_S,
    ) -> ResponseT:
        """Makes a call once: nobody knows whether one without an answer was carried out."""
        return await self._ask_one(self._replicas.in_order()[:1], method, request, access_token, timeout_s)

    async def ask_each(
        self,
        method: "Callable[[StubsT], grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]]",
        request: RequestT,
        access_token: bytes,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> dict[str, ResponseT | LegatoError]:
        """Makes a call to every replica, at the same time; returns what each answers, by address."""
        replicas = sorted(self._replicas.in_order(), key=lambda replica: replica.address)

        async def ask(replica: ServiceReplica[StubsT]) -> ResponseT | LegatoError:
            try:
                return await self._ask_one([replica], method, request, access_token, timeout_s)
            except LegatoError as error:
                return error

        answers = await asyncio.gather(*map(ask, replicas))
        return dict(zip((replica.address for replica in replicas), answers, strict=True))

    async def _ask_one(
        self,
        replicas: list[ServiceReplica[StubsT]],
        method: "Callable[[StubsT], grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]]",
        request: RequestT,
        access_token: bytes,
        timeout_s: float,
    ) -> ResponseT:
        for replica in replicas:
            try:
                return await _call(replica, method, request, access_token, timeout_s)
            except grpc.RpcError as error:
                raise from_rpc_error(error, self._name) from None
        raise unavailable(self._name)


async def _call(
    replica: ServiceReplica[StubsT],
    method: "Callable[[StubsT], grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT]]",
    request: RequestT,
    access_token: bytes,
    timeout_s: float,
) -> ResponseT:
    metadata = _metadata(access_token)
    replica.load += 1
    try:
        # While a service restarts, a call waits for it rather than fail at once.
        return await method(replica.stubs)(request, timeout=timeout_s, metadata=metadata, wait_for_ready=True)
    finally:
        replica.load -= 1


def _metadata(access_token: bytes) -> Any:
    return ((ACCESS_TOKEN_METADATA, access_token),) if access_token else None


class Services:
    def __init__(
        self,
        addresses: Callable[[str], str],
        certificates: Certificates | None,
        log: Log,
        payments_address: str = "",
    ) -> None:
        """Takes the `addresses` of a service by its name, and that of payments, if there are any."""
        self.auth = ServiceClient("Sign-in", "auth", addresses("auth"), AuthStubs, certificates, log)
        self.metering = ServiceClient("Metering", "metering", addresses("metering"), MeteringStubs, certificates, log)
        self.router = ServiceClient("The router", "router", addresses("router"), RouterStubs, certificates, log)
        self.payments: ServiceClient[PaymentStubs] | None = None
        if payments_address:
            self.payments = ServiceClient("Payments", "payments", payments_address, PaymentStubs, certificates, log)

    async def start(self) -> None:
        await self.auth.start()
        await self.metering.start()
        await self.router.start()
        if self.payments is not None:
            await self.payments.start()

    async def close(self) -> None:
        await self.auth.close()
        await self.metering.close()
        await self.router.close()
        if self.payments is not None:
            await self.payments.close()

    def usable(self) -> dict[str, int]:
        """Returns the number of usable replicas by service."""
        return {
            "auth": self.auth.count_usable(),
            "metering": self.metering.count_usable(),
            "router": self.router.count_usable(),
            **({"payments": self.payments.count_usable()} if self.payments is not None else {}),
        }
