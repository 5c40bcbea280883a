"""The processes of the service on TCP, with certificates, and every RPC of theirs by the descriptors."""

import importlib
import os
import pkgutil
import secrets
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import legato_protos
from cli.connection import ServiceStubs, call_service, running_services
from legato_protos.auth.v1 import users_pb2
from legato_protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.access_tokens import METADATA_KEY, AccessTokenSigner
from services.chassis.rpc.certificates import Pem
from services.chassis.rpc.channel import open_sync_channel
from tests.support.certificates import Authority
from tests.support.forked.forked_process import ForkedProcess
from tests.support.servers.ports import free_port
from tests.support.service import NEVER_SATURATED, ROUTES, make_data_folder
from tests.support.waiting import WAIT_TIMEOUT_S, wait_until

SERVICES: Final = ("auth", "router", "metering", "payments")
# Who serves the packages of legato_protos.
SERVERS: Final = {**{service: service for service in SERVICES}, "chat": "edge"}

Metadata = Sequence[tuple[str, str | bytes]]


@dataclass(frozen=True)
class Method:
    # The process that serves it.
    server: str
    descriptor: MethodDescriptor

    @property
    def name(self) -> str:
        return f"{self.descriptor.containing_service.name}.{self.descriptor.name}"

    @property
    def path(self) -> str:
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def request_type(self) -> type[Any]:
        return GetMessageClass(self.descriptor.input_type)

    def call(self, channel: grpc.Channel, request: Message, metadata: Metadata = ()) -> Any:
        """Returns the first response. Every kind of call is made as a stream of one: the wire is the same."""
        called = channel.stream_stream(
            self.path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=GetMessageClass(self.descriptor.output_type).FromString,
        )(iter([request]), metadata=tuple(metadata), timeout=WAIT_TIMEOUT_S)
        try:
            return next(called)
        finally:
            called.cancel()


def _every_method() -> dict[str, Method]:
    found = {}
    for module in pkgutil.walk_packages(legato_protos.__path__, "legato_protos."):
        if module.name.endswith("_pb2"):
            for service in importlib.import_module(module.name).DESCRIPTOR.services_by_name.values():
                for descriptor in service.methods:
                    method = Method(SERVERS[service.file.package.split(".")[1]], descriptor)
                    found[method.name] = method
    return found


# By name, such as "AuthService.Verify".
METHODS: Final = _every_method()


class Deployment:
    """Each process on a port of its own. The chats of the edge end at `base_url`."""

    def __init__(self, base_url: str = "http://127.0.0.1:9/v1") -> None:
        self.folder = make_data_folder(Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp")))
        self._authority = Authority(self.folder / "certs")
        self._ports = {server: free_port() for server in SERVERS.values()}
        signing_key = secrets.token_hex(32)
        self.signer = AccessTokenSigner(signing_key)
        routes = self.folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=base_url))
        own = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._environ = {
            **own,
            **NEVER_SATURATED,
            "LEGATO_DATA": str(self.folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            "LEGATO_CONSOLE_URL": "https://console.example.ca",
            "LEGATO_ACCESS_TOKEN_PUBLIC_KEYS": self.signer.public_key(),
            "LEGATO_STRIPE_SECRET_KEY": "sk_test_local",
            "LEGATO_STRIPE_WEBHOOK_SECRET": "whsec_local",
            "LEGATO_STRIPE_API_URL": "http://127.0.0.1:9",
            **{f"LEGATO_{name.upper()}_ADDRESS": f"127.0.0.1:{self._ports[name]}" for name in SERVICES},
        }
        self._children = [self._start(service, signing_key) for service in SERVICES]
        self._children.append(self._start_edge())

    def _start(self, service: str, signing_key: str) -> Any:
        environ = {f"LEGATO_{service.upper()}_LISTEN": f"127.0.0.1:{self._ports[service]}"}
        if service == "auth":
            environ["LEGATO_ACCESS_TOKEN_SIGNING_KEY"] = signing_key
        return self._run(service, f"services.{service}", environ)

    def _start_edge(self) -> Any:
        environ = {"LEGATO_EDGE_PORT": str(free_port()), "LEGATO_EDGE_RPC_LISTEN": f"127.0.0.1:{self._ports['edge']}"}
        return self._run("edge", "edge", environ)

    def _run(self, identity: str, module: str, environ: dict[str, str]) -> Any:
        environ = self._environ | self._tls(identity) | environ
        return ForkedProcess.start_module(module, environ, self.folder / f"{identity}.log")

    def wait(self) -> None:
        """Waits until every process takes calls."""
        for channel in self.channels("admin").values():
            wait_until(partial(_is_ready, channel))
            channel.close()

    def admin(self) -> ServiceStubs:
        return running_services(self.folder, self._environ | self._tls("admin"))

    def channels(self, identity: str) -> dict[str, grpc.Channel]:
        """Returns a channel to each process."""
        tls = self._tls(identity)
        pem = Pem(*(Path(tls[f"LEGATO_TLS_{name}"]).read_bytes() for name in ("CA", "CERT", "KEY")))
        return {name: open_sync_channel(f"127.0.0.1:{port}", pem, name) for name, port in self._ports.items()}

    def channels_without_certificate(self, *, trusts: bool) -> dict[str, grpc.Channel]:
        """Returns channels with TLS that present nothing, or without TLS."""
        if not trusts:
            return {name: open_sync_channel(f"127.0.0.1:{port}") for name, port in self._ports.items()}
        credentials = grpc.ssl_channel_credentials((self.folder / "certs" / "ca.pem").read_bytes())
        return {
            name: grpc.secure_channel(f"127.0.0.1:{port}", credentials, [("grpc.ssl_target_name_override", name)])
            for name, port in self._ports.items()
        }

    def _tls(self, identity: str) -> dict[str, str]:
        certificate, key = self._authority.files(identity)
        authority = certificate.with_name("ca.pem")
        return {"LEGATO_TLS_CA": str(authority), "LEGATO_TLS_CERT": str(certificate), "LEGATO_TLS_KEY": str(key)}

    def stop(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(WAIT_TIMEOUT_S)
        shutil.rmtree(self.folder, ignore_errors=True)


class Visitor:
    """A user of one account, signed in by way of the console whose channel is given."""

    def __init__(self, admin: ServiceStubs, auth: grpc.Channel, account_id: str, role: "AccountRole.ValueType") -> None:
        self._auth = auth
        request = users_pb2.CreateUserRequest(name="Ada", account_id=account_id, role=role)
        made = call_service(admin.users.CreateUser, request, repeatable=False)
        self.user_id = made.user.user_id
        client = users_pb2.Client(address=f"192.0.2.{secrets.randbelow(256)}")
        proof = users_pb2.Proof(sign_in_link_code=made.code)
        signing_in = users_pb2.SignInRequest(proof=proof, client=client)
        signed_in = METHODS["SignInService.SignIn"].call(auth, signing_in).signed_in
        self.session_token: str = signed_in.session_token

    def token(self) -> bytes:
        """Returns a fresh access token: they end after a minute."""
        request = users_pb2.ResolveSessionRequest(session_token=self.session_token)
        token: bytes = METHODS["SignInService.ResolveSession"].call(self._auth, request).access_token
        return token

    @property
    def metadata(self) -> Metadata:
        return ((METADATA_KEY, self.token()),)


def _is_ready(channel: grpc.Channel) -> bool:
    """Returns whether a server is there, which has no such method. A future of the channel's state would leave a thread
    that watches the channel, and fails when that is closed."""
    try:
        call: Any = channel.unary_unary("/no.Service/HasThis")
        call(b"", timeout=1, wait_for_ready=True)
    except grpc.RpcError as error:
        return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return True
