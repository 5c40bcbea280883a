"""Auth with a socket for a console, and the calls that a console makes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from legato_protos.auth.v1 import accounts_pb2_grpc, auth_pb2, auth_pb2_grpc, credentials_pb2_grpc
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1 import users_pb2_grpc as pb_grpc
from legato_protos.type.v1.access_token_pb2 import AccountRole
from services.auth.core.peppers import Peppers
from services.auth.core.records.accounts import KeyLimits
from services.auth.service import AuthService, ConsoleOptions
from services.chassis.access_tokens import METADATA_KEY, Access, current_access
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.support.fakes import FakeClock

ORIGIN = "http://localhost:8081"
OPTIONS = ConsoleOptions(signing_key="44" * 32, origins=ORIGIN, service_limits=KeyLimits(requests_per_minute=3_000))
CLIENT = pb.Client(address="192.0.2.77", browser="Firefox on Linux")
EMAIL = "ada@example.ca"
OWNER, MEMBER, VIEWER = (
    AccountRole.ACCOUNT_ROLE_OWNER,
    AccountRole.ACCOUNT_ROLE_MEMBER,
    AccountRole.ACCOUNT_ROLE_VIEWER,
)


class Console:
    """A console, by its own socket, and the command line, by the other."""

    def __init__(self, console: grpc.aio.Channel, admin: grpc.aio.Channel) -> None:
        self.console_channel = console
        self.admin_channel = admin
        self.sign_in = credentials_pb2_grpc.SignInServiceStub(console)
        self.user = credentials_pb2_grpc.UserServiceStub(console)
        self.account = accounts_pb2_grpc.AccountAdminServiceStub(console)
        self.key_admin = auth_pb2_grpc.KeyAdminServiceStub(console)
        self.account_admin = accounts_pb2_grpc.AccountAdminServiceStub(console)
        self.audit = pb_grpc.AuditServiceStub(console)
        self.admin_audit = pb_grpc.AuditServiceStub(admin)
        self.methods = credentials_pb2_grpc.SignInServiceStub(console)
        self.credentials = credentials_pb2_grpc.UserServiceStub(console)
        self.operators = pb_grpc.UserAdminServiceStub(console)
        self.admin = pb_grpc.UserAdminServiceStub(admin)
        self.accounts = accounts_pb2_grpc.AccountAdminServiceStub(admin)
        self.keys = auth_pb2_grpc.KeyAdminServiceStub(admin)
        self.auth = auth_pb2_grpc.AuthServiceStub(admin)
        self.callers = auth_pb2_grpc.KeyAdminServiceStub(admin)

    async def call(self, method: Any, request: Any, token: bytes | None = None) -> Any:
        with errors_of("auth"):
            return await method(request, metadata=None if token is None else ((METADATA_KEY, token),))

    async def reason(self, method: Any, request: Any, token: bytes | None = None) -> Reason | None:
        try:
            await self.call(method, request, token)
        except LegatoError as error:
            return error.reason
        return None

    async def create_account(self) -> str:
        made = await self.call(self.accounts.CreateAccount, auth_pb2.CreateAccountRequest(name="Acme"))
        return str(made.account.account_id)

    async def create_user(self, account_id: str = "", role: Any = OWNER, email: str = "") -> pb.CreateUserResponse:
        request = pb.CreateUserRequest(name="Ada", email=email, account_id=account_id, role=role)
        return await self.call(self.admin.CreateUser, request)  # type: ignore[no-any-return]

    async def use_link(self, code: str, client: pb.Client = CLIENT) -> pb.SignedIn:
        response = await self.call(self.sign_in.SignIn, by_link(code, client))
        return response.signed_in  # type: ignore[no-any-return]

    async def resolve(self, session_token: str, account_id: str = "") -> pb.ResolveSessionResponse:
        request = pb.ResolveSessionRequest(session_token=session_token, account_id=account_id)
        return await self.call(self.sign_in.ResolveSession, request)  # type: ignore[no-any-return]

    async def signed_in(self, account_id: str, role: Any = OWNER) -> tuple[pb.SignedIn, bytes]:
        """Gives a new user's session, and an access token for the account."""
        signed_in = await self.use_link((await self.create_user(account_id, role)).code)
        return signed_in, (await self.resolve(signed_in.session_token, account_id)).access_token


async def call_directly(auth: AuthService, request: Any, by: Access | None = None) -> Any:
    """Calls the RPC of a request at its servicer, without a socket."""
    method = type(request).__name__.removesuffix("Request")
    servicer = next(each for each in auth.servicers if hasattr(each, method))
    before = current_access.set(by)
    try:
        return await getattr(servicer, method)(request, None)
    finally:
        current_access.reset(before)


def by_link(code: str, client: pb.Client = CLIENT) -> pb.SignInRequest:
    return pb.SignInRequest(proof=pb.Proof(sign_in_link_code=code), client=client)


async def serve(auth: AuthService, log: Log, folder: Path, role: str) -> tuple[RpcServer, str, str]:
    admin, console = f"unix:{folder}/auth.sock", f"unix:{folder}/auth-console.sock"
    server = RpcServer(admin, auth.servicers, log, access=auth.access, console_listen=console, console_role=role)
    await server.start()
    return server, admin, console


@pytest.fixture
def auth(database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep) -> AuthService:
    return AuthService(database, peppers, clock, log, sleep, OPTIONS)


@pytest.fixture
def console_role() -> str:
    return "console"


@pytest.fixture
async def console(auth: AuthService, log: Log, socket_folder: Path, console_role: str) -> AsyncIterator[Console]:
    server, admin, listen = await serve(auth, log, socket_folder, console_role)
    async with open_channel(listen) as channel, open_channel(admin) as admin_channel:
        yield Console(channel, admin_channel)
    await server.stop(0)
