"""Identifies the caller of an RPC, and says whether it may call a method.

On TCP a caller is identified by its certificate: the URI `spiffe://legato/NAME` among its alternative names. On a unix
socket, file permissions admit the owner alone, who may call everything; sockets for a console have its role instead.
Each method names its callers in its .proto file: see protos/legato/type/v1/method_access.proto. Only the service for
programs is named here, because its public contract has nothing of ours.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from enum import Enum
from functools import cache
from typing import Any, Final

import grpc.aio
from google.protobuf import descriptor_pool

from legato_protos.type.v1 import method_access_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.former_names import present_path
from services.chassis.sentence import Sentence

TRUST_DOMAIN: Final = "spiffe://legato/"
CALLER_PREFIX: Final = "caller/"
# What grpcio gives each method of a servicer.
Context = grpc.aio.ServicerContext[Any, Any]
# What the edge serves to programs.
PUBLIC_SERVICE: Final = "legato.chat.v1.ChatService"


class Role(Enum):
    EDGE = "edge"
    # Internal programs, which call the edge alone; each has its own name.
    CALLER = "caller"
    ADMIN = "admin"
    # Most calls of consoles also need a user's access token: see access_check.py.
    CONSOLE = "console"
    OPERATOR_CONSOLE = "operator-console"
    PAYMENTS = "payments"
    AUTH = "auth"
    ROUTER = "router"
    # A server only: it makes no calls.
    METERING = "metering"


CONSOLES: Final = frozenset({Role.CONSOLE, Role.OPERATOR_CONSOLE})

# The role of the caller whose call the current task serves; None: the owner, on a unix socket.
current_role: ContextVar[Role | None] = ContextVar("current_role", default=None)

_ROLES: Final = {
    pb.CALLER_EDGE: {Role.EDGE},
    pb.CALLER_PROGRAM: {Role.CALLER},
    pb.CALLER_ADMIN: {Role.ADMIN},
    pb.CALLER_CONSOLE: CONSOLES,
    pb.CALLER_OPERATOR_CONSOLE: {Role.OPERATOR_CONSOLE},
    pb.CALLER_PAYMENTS: {Role.PAYMENTS},
    pb.CALLER_AUTH: {Role.AUTH},
    pb.CALLER_ROUTER: {Role.ROUTER},
}
# Services whose contracts do not say who may call them: gRPC's own, which every server has, and the public one.
_HEALTH_CALLERS: Final = CONSOLES | {Role.EDGE, Role.CALLER, Role.ADMIN, Role.PAYMENTS}
_SERVICES: Final = {
    "grpc.health.v1.Health": _HEALTH_CALLERS,
    "grpc.reflection.v1.ServerReflection": {Role.CALLER, Role.ADMIN},
    "grpc.reflection.v1alpha.ServerReflection": {Role.CALLER, Role.ADMIN},
    PUBLIC_SERVICE: {Role.CALLER},
}


@cache
def access_of(method: str) -> pb.MethodAccess:
    """Returns what the contract says of a served method, given as `/SERVICE/NAME`."""
    try:
        found = descriptor_pool.Default().FindMethodByName(present_path(method)[1:].replace("/", "."))
    except KeyError:
        return pb.MethodAccess()
    access: pb.MethodAccess = found.GetOptions().Extensions[pb.access]
    return access


@cache
def roles_for(method: str) -> frozenset[Role]:
    """Returns the roles that may call a served method."""
    service = method.split("/")[1]
    if service in _SERVICES:
        return frozenset(_SERVICES[service])
    return frozenset(role for caller in access_of(method).callers for role in _ROLES[caller])


def uri_of(name: str) -> str:
    """Returns the URI of `name`, a role or `caller/NAME`."""
    return TRUST_DOMAIN + name


def role_of(names: Iterable[str]) -> Role | None:
    """Returns the role of a certificate's alternative names; None if they name no known caller, or several."""
    ours = [name.removeprefix(TRUST_DOMAIN) for name in names if name.startswith(TRUST_DOMAIN)]
    if len(ours) != 1:
        return None
    if ours[0].startswith(CALLER_PREFIX) and len(ours[0]) > len(CALLER_PREFIX):
        return Role.CALLER
    return next((role for role in Role if role is not Role.CALLER and role.value == ours[0]), None)


def is_secured(context: Context) -> bool:
    """Returns whether the caller has a certificate."""
    return bool(context.auth_context().get("transport_security_type") == [b"ssl"])


def names_of(context: Context) -> list[str]:
    """Returns the alternative names of the caller's certificate."""
    names = context.auth_context().get("x509_subject_alternative_name", ())
    return [name.decode("utf-8", "replace") for name in names]


def not_allowed(role: Role | None = None) -> LegatoError:
    sentence = Sentence("certificate_not_allowed")
    if role is Role.CALLER:
        sentence = Sentence("certificate_not_allowed_caller", service=PUBLIC_SERVICE)
    return LegatoError(Reason.CALLER_NOT_ALLOWED, sentence)
