"""Whom a call is for, and who says so."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from edge.backends.auth import Scope
from edge.rpc.callers import identify, scope_of
from edge.rpc.relay import Client
from services.chassis.errors import LegatoError, Reason

UNIX, TCP = None, ("192.0.2.7", 50051)
CERTIFICATE = ["DNS:ignored", "spiffe://legato/caller/mailer"]


class Call:
    def __init__(self, client: Client, names: Sequence[str] = (), **metadata: str) -> None:
        self.client = client
        self._names = names
        self._metadata = [(name.replace("_", "-"), value) for name, value in metadata.items()]

    def auth_context(self) -> dict[str, list[bytes]]:
        names = [name.encode() for name in self._names]
        return {"transport_security_type": [b"ssl"], "x509_subject_alternative_name": names} if names else {}

    def invocation_metadata(self) -> Any:
        return self._metadata


def test_metadata_are_headers() -> None:
    scope = scope_of(cast(Any, Call(TCP, authorization="Bearer sk")), TCP)
    assert scope == {"headers": [(b"authorization", b"Bearer sk")], "client": TCP}


class Principals:
    """Says what it was asked."""

    async def identify(self, scope: Any, needed: Any) -> Any:
        return "key"

    async def identify_caller(self, scope: Any, caller: str, account_id: str, needed: Any) -> Any:
        return caller, account_id


async def found(call: Call) -> Any:
    context = cast(Any, call)
    return await identify(cast(Any, Principals()), context, scope_of(context, call.client), Scope.SCOPE_INFERENCE)


async def test_call_is_for_the_owner_of_its_key_or_for_the_account_that_it_names() -> None:
    assert await found(Call(TCP, CERTIFICATE, x_api_key="sk")) == "key"
    assert await found(Call(TCP, CERTIFICATE)) == "key"
    for_account = {"x_legato_account": "acct_ann"}
    assert await found(Call(TCP, CERTIFICATE, **for_account)) == ("mailer", "acct_ann")
    assert await found(Call(TCP, CERTIFICATE, x_legato_caller="mailer", **for_account)) == ("mailer", "acct_ann")
    assert await found(Call(UNIX, x_legato_caller="mailer", **for_account)) == ("mailer", "acct_ann")


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (Call(TCP, CERTIFICATE, x_legato_caller="another"), Reason.CALLER_NOT_ALLOWED),
        (Call(TCP, x_legato_caller="mailer"), Reason.CALLER_NOT_ALLOWED),
        (Call(UNIX), Reason.REQUEST_INVALID),
        (Call(UNIX, x_legato_caller="mailer", authorization="Bearer sk"), Reason.REQUEST_INVALID),
    ],
)
async def test_caller_cannot_say_that_it_is_another(call: Call, reason: Reason) -> None:
    call._metadata.append(("x-legato-account", "acct_ann"))
    with pytest.raises(LegatoError) as refused:
        await found(call)
    assert refused.value.reason is reason
