"""A console that was taken over gives its certificate and its memory: the users who visit it, and nothing else.

The services are real processes on TCP. Every RPC of every service is tried, by the descriptors, so that no new one is
forgotten.
"""

import importlib
import os
import pkgutil
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

import legato_protos
from cli.commands.account.accounts import create_account
from cli.connection import ServiceStubs, call_service, running_services
from cli.supervision.environment import GRPC_WITHOUT_EVENT_ENGINE
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.type.v1.access_token_pb2 import AccountRole as ProtoRole
from services.chassis.access_tokens import LIFETIME_US, METADATA_KEY, Access, AccessTokenSigner, AccountRole
from services.chassis.errors import Reason
from services.chassis.rpc.certificates import Pem
from services.chassis.rpc.channel import from_rpc_error, open_sync_channel
from tests.support.certificates import Authority
from tests.support.servers.child import start_child
from tests.support.servers.ports import free_port
from tests.support.service import ROUTES
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

SERVICES: Final = ("auth", "router", "metering", "payments")
CREDIT_NANOS: Final = 5 * 10**9
# What the console may do without a visitor: find out who one is.
# What it may do for a visitor, who must be signed in: these services, and of two others these methods.
WITHOUT_A_VISITOR: Final = {"SignInService", "SignInMethodService"}
# It passes on what Stripe has signed.
METHODS_WITHOUT_A_VISITOR: Final = {"PaymentService.ReceiveEvent"}
FOR_VISITORS: Final = {
    "UserService",
    "CredentialService",
    "AccountService",
    "StatementService",
    "SpendLimitService",
    "NoticeService",
    "NoticeThresholdService",
    "GroundingAdminService",
}
METHODS_FOR_VISITORS: Final = {
    "AccountAdminService": {"GetAccount", "UpdateAccount"},
    "AuditService": {"ListAuditEvents"},
    "KeyAdminService": {
        "CreateKey",
        "RotateKey",
        "ListKeys",
        "RenameKey",
        "UpdateKey",
        "RevokeKey",
        "GetKey",
        "CreateKeyAccessToken",
    },
    "MeteringService": {"ListUsage", "GetBalance", "GetRequest"},
    "RouterService": {"ListModels"},
    "CreditAdminService": {"ListCredits"},
    "PaymentService": {"GetPaymentOptions", "CreateCheckout", "GetCheckout"},
}
# What only operators' consoles may do.
FOR_OPERATORS: Final = {"NoticeService.ListDeadLetters", "SpendLimitService.RecountSpends"}


@dataclass(frozen=True)
class Method:
    service: str
    descriptor: MethodDescriptor

    @property
    def name(self) -> str:
        return f"{self.descriptor.containing_service.name}.{self.descriptor.name}"

    @property
    def needs_no_visitor(self) -> bool:
        return self.descriptor.containing_service.name in WITHOUT_A_VISITOR or self.name in METHODS_WITHOUT_A_VISITOR

    @property
    def is_for_visitors(self) -> bool:
        group = self.descriptor.containing_service.name
        if self.name in FOR_OPERATORS:
            return False
        return group in FOR_VISITORS or self.descriptor.name in METHODS_FOR_VISITORS.get(group, ())


def every_method() -> list[Method]:
    found: list[Method] = []
    for module in pkgutil.walk_packages(legato_protos.__path__, "legato_protos."):
        if module.name.endswith("_pb2"):
            groups: list[ServiceDescriptor] = list(
                importlib.import_module(module.name).DESCRIPTOR.services_by_name.values()
            )
            found += [Method(group.file.package.split(".")[1], method) for group in groups for method in group.methods]
    return found


EVERY_METHOD: Final = every_method()


class Deployment:
    """Auth, router, metering and payments, each on a port of its own, with certificates."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
        self._authority = Authority(self.folder / "certs")
        self._ports = {service: free_port() for service in SERVICES}
        signing_key = secrets.token_hex(32)
        self.signer = AccessTokenSigner(signing_key)
        routes = self.folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url="http://127.0.0.1:9/v1"))
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._environ = {
            **GRPC_WITHOUT_EVENT_ENGINE,
            **own,
            "LEGATO_DATA": str(self.folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            "LEGATO_CONSOLE_URL": "https://console.example.ca",
            "LEGATO_ACCESS_TOKEN_PUBLIC_KEYS": self.signer.public_key(),
            "LEGATO_STRIPE_SECRET_KEY": "sk_test_local",
            "LEGATO_STRIPE_WEBHOOK_SECRET": "whsec_local",
            "LEGATO_STRIPE_API_URL": "http://127.0.0.1:9",
            **{f"LEGATO_{name.upper()}_ADDRESS": f"127.0.0.1:{port}" for name, port in self._ports.items()},
        }
        self._children = [self._start(service, signing_key) for service in SERVICES]

    def _start(self, service: str, signing_key: str) -> Any:
        environ = self._environ | self._tls(service)
        environ[f"LEGATO_{service.upper()}_LISTEN"] = f"127.0.0.1:{self._ports[service]}"
        if service == "auth":
            environ["LEGATO_ACCESS_TOKEN_SIGNING_KEY"] = signing_key
        command = [sys.executable, "-m", f"services.{service}"]
        return start_child(command, self.folder / f"{service}.log", last_signal=signal.SIGKILL, environ=environ)

    def admin(self) -> ServiceStubs:
        return running_services(self.folder, self._environ | self._tls("admin"))

    def channels(self, identity: str) -> dict[str, grpc.Channel]:
        tls = self._tls(identity)
        pem = Pem(*(Path(tls[f"LEGATO_TLS_{name}"]).read_bytes() for name in ("CA", "CERT", "KEY")))
        return {name: open_sync_channel(f"127.0.0.1:{port}", pem, name) for name, port in self._ports.items()}

    def _tls(self, identity: str) -> dict[str, str]:
        certificate, key = self._authority.files(identity)
        authority = certificate.with_name("ca.pem")
        return {"LEGATO_TLS_CA": str(authority), "LEGATO_TLS_CERT": str(certificate), "LEGATO_TLS_KEY": str(key)}

    def stop(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(WAIT_TIMEOUT_S)
        shutil.rmtree(self.folder, ignore_errors=True)


class TakenOver:
    """A console in the hands of an attacker, with one visitor: a viewer of the account `own`."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._channels = deployment.channels("console")
        admin = deployment.admin()
        for channel in self._channels.values():
            wait_until(partial(_is_ready, channel))
        self.own, self.other = (create_account(admin, name, CREDIT_NANOS)[0].account_id for name in ("own", "other"))
        request = pb.CreateUserRequest(name="Ada", account_id=self.own, role=ProtoRole.ACCOUNT_ROLE_VIEWER)
        made = call_service(admin.users.CreateUser, request, repeatable=False)
        admin.close()
        self.user_id = made.user.user_id
        signed_in = self.answer(
            "SignInService.SignIn", pb.SignInRequest(proof=pb.Proof(sign_in_link_code=made.code))
        ).signed_in
        self.session_token: str = signed_in.session_token
        self.token: bytes = self.resolve().access_token

    def resolve(self) -> Any:
        return self.answer("SignInService.ResolveSession", pb.ResolveSessionRequest(session_token=self.session_token))

    def answer(self, name: str, request: Any, token: bytes = b"") -> Any:
        [method] = [method for method in EVERY_METHOD if method.name == name]
        return self._call(method, request, token)

    def attempt(self, method: Method, account_id: str = "", token: bytes = b"") -> Reason | None:
        """Calls a method, about an account if it is about any; returns why not, or None if it was done."""
        request = GetMessageClass(method.descriptor.input_type)()
        if "account_id" in method.descriptor.input_type.fields_by_name:
            request.account_id = account_id  # type: ignore[attr-defined]
        try:
            self._call(method, request, token)
        except grpc.RpcError as error:
            return from_rpc_error(error, method.service).reason
        return None

    def _call(self, method: Method, request: Any, token: bytes) -> Any:
        """Makes every kind of call as a stream of one: the wire is the same."""
        path = f"/{method.descriptor.containing_service.full_name}/{method.descriptor.name}"
        kind = GetMessageClass(method.descriptor.output_type)
        call = self._channels[method.service].stream_stream(
            path, request_serializer=type(request).SerializeToString, response_deserializer=kind.FromString
        )
        metadata = ((METADATA_KEY, token),) if token else ()
        answers = call(iter([request]), metadata=metadata, timeout=WAIT_TIMEOUT_S)
        first = next(answers)
        answers.cancel()
        return first

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def _is_ready(channel: grpc.Channel) -> bool:
    try:
        grpc.channel_ready_future(channel).result(timeout=1)
    except grpc.FutureTimeoutError:
        return False
    return True


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    made = Deployment()
    yield made
    made.stop()


@pytest.fixture
def console(deployment: Deployment) -> Iterator[TakenOver]:
    taken = TakenOver(deployment)
    yield taken
    taken.close()


def test_without_a_visitor_it_may_only_sign_users_in(console: TakenOver) -> None:
    outcomes = {method.name: console.attempt(method, console.other) for method in EVERY_METHOD}
    refused = {name for name, reason in outcomes.items() if reason is Reason.CALLER_NOT_ALLOWED}
    need_a_visitor = {name for name, reason in outcomes.items() if reason is Reason.ACCESS_TOKEN_INVALID}
    assert set(outcomes) - refused - need_a_visitor == {each.name for each in EVERY_METHOD if each.needs_no_visitor}
    assert need_a_visitor == {each.name for each in EVERY_METHOD if each.is_for_visitors}
    # Nothing that grants credit, reads or sends a message, holds credit, or learns about keys.
    for name in ("CreditAdminService.GrantCredits", "RouterService.Chat", "RouterService.Exchange"):
        assert name in refused
    # An event that Stripe has not signed books nothing.
    assert "PaymentBookingService.BookPayment" in refused
    assert outcomes["PaymentService.ReceiveEvent"] is Reason.REQUEST_INVALID
    for name in ("MeteringService.Reserve", "MeteringService.Exchange", "AuthService.Verify", "AuthService.Watch"):
        assert name in refused
    assert refused >= FOR_OPERATORS
    assert len(refused) > 20


def test_tokens_that_auth_did_not_sign_for_this_minute_are_refused(console: TakenOver, deployment: Deployment) -> None:
    now_us = time.time_ns() // 1000
    everything = Access(console.user_id, "sess_1", console.other, AccountRole.OWNER, True, now_us, now_us + LIFETIME_US)
    made_by_the_console = AccessTokenSigner(secrets.token_hex(32)).sign(everything)
    expired = deployment.signer.sign(replace(everything, expires_at_us=now_us - 1))
    changed = bytearray(console.token)
    changed[10] ^= 1
    for token in (made_by_the_console, expired, bytes(changed), b"x"):
        done = {
            method.name
            for method in EVERY_METHOD
            if method.is_for_visitors
            and console.attempt(method, console.other, token) is not Reason.ACCESS_TOKEN_INVALID
        }
        assert done == set()


def test_a_visitor_is_of_use_in_their_own_account_alone(console: TakenOver) -> None:
    """Requests without an account are about the visitor; no answer to them is about anybody else."""
    about_accounts = [
        method
        for method in EVERY_METHOD
        if method.is_for_visitors and "account_id" in method.descriptor.input_type.fields_by_name
    ]
    assert len(about_accounts) > 15
    for account_id in (console.other, ""):
        allowed = [
            method.name
            for method in about_accounts
            if console.attempt(method, account_id, console.token) is not Reason.ROLE_MISSING
        ]
        # Which models there are, everybody who is signed in may know.
        assert [name for name in allowed if name != "RouterService.ListModels"] == []
    # The token itself is good, and a viewer's.
    [balance] = [method for method in EVERY_METHOD if method.name == "MeteringService.GetBalance"]
    assert console.attempt(balance, console.own, console.token) is None
    [create] = [method for method in EVERY_METHOD if method.name == "KeyAdminService.CreateKey"]
    assert console.attempt(create, console.own, console.token) is Reason.ROLE_MISSING


def test_a_visitor_who_signed_out_is_of_no_use_to_auth(console: TakenOver) -> None:
    console.answer("SignInService.SignOut", pb.SignOutRequest(session_token=console.session_token))
    methods = [method for method in EVERY_METHOD if method.is_for_visitors and method.service == "auth"]
    done = [method.name for method in methods if console.attempt(method, console.own, console.token) is None]
    assert done == []
    with pytest.raises(grpc.RpcError) as refused:
        console.resolve()
    assert from_rpc_error(refused.value, "auth").reason is Reason.SESSION_ENDED


def test_a_visitor_whose_role_ended_is_of_no_use_to_auth(console: TakenOver, deployment: Deployment) -> None:
    admin = deployment.admin()
    call_service(admin.users.DisableUser, pb.DisableUserRequest(user_id=console.user_id))
    admin.close()
    methods = [method for method in EVERY_METHOD if method.is_for_visitors and method.service == "auth"]
    done = [method.name for method in methods if console.attempt(method, console.own, console.token) is None]
    assert done == []
