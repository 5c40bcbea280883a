"""Finds out whom a call is for: the owner of an API key, or an account that its caller names and was granted."""

from collections.abc import Awaitable
from typing import Final

from edge.access.principals import Principals
from edge.backends.auth import Principal, Scope
from edge.rpc.relay import Client
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.asgi import HttpScope
from services.chassis.rpc.callers import CALLER_PREFIX, Context, is_secured, names_of, not_allowed, uri_of
from services.chassis.sentence import Sentence

ACCOUNT: Final = b"x-legato-account"
CALLER: Final = b"x-legato-caller"
_KEYS: Final = frozenset({b"authorization", b"x-api-key"})


def scope_of(context: Context, client: Client) -> HttpScope:
    """Returns the metadata as headers, and the address of a caller over TCP, as ASGI has them."""
    headers = [
        (name.encode(), value if isinstance(value, bytes) else value.encode())
        for name, value in context.invocation_metadata() or ()
    ]
    return {"headers": headers, "client": client}


def identify(
    principals: Principals, context: Context, scope: HttpScope, needed: "Scope.ValueType"
) -> Awaitable[Principal]:
    """Returns whom a call is for, if that one has the scope."""
    headers = scope["headers"]
    account_id = next((value for name, value in headers if name == ACCOUNT), b"")
    if not account_id:
        return principals.identify(scope, needed)
    if any(name in _KEYS for name, _ in headers):
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("key_or_account"))
    return principals.identify_caller(scope, _caller_of(context, scope), account_id.decode("utf-8", "replace"), needed)


def _caller_of(context: Context, scope: HttpScope) -> str:
    """Returns the caller's name: that of its certificate, or on a Unix socket, which only the owner of the machine can
    reach, the one that it says."""
    named = next((value.decode("utf-8", "replace") for name, value in scope["headers"] if name == CALLER), "")
    if is_secured(context):
        start = uri_of(CALLER_PREFIX)
        [name] = [name.removeprefix(start) for name in names_of(context) if name.startswith(start)]
        if named and named != name:
            raise not_allowed()
        return name
    if scope["client"] is not None:
        # TCP without certificates.
        raise not_allowed()
    if not named:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("caller_unnamed"), param="x-legato-caller")
    return named
