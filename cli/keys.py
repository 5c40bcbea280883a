"""`legato keys`."""

from collections.abc import Iterator, Sequence
from typing import Any

import click

from cli.connection import Services, ask
from cli.names import OneOrMoreOf
from cli.options import Invocation, shared_options, takes_invocation
from cli.output import rfc3339_of
from protos.auth.v1.auth_pb2 import (
    CreateKeyRequest,
    CreateKeyResponse,
    Key,
    KeyState,
    ListKeysRequest,
    RevokeKeyRequest,
    Scope,
)

SCOPES = {"inference": Scope.SCOPE_INFERENCE, "models": Scope.SCOPE_MODELS, "usage": Scope.SCOPE_USAGE}
STATES = {
    KeyState.KEY_STATE_ACTIVE: "active",
    KeyState.KEY_STATE_REVOKED: "revoked",
    KeyState.KEY_STATE_EXPIRED: "expired",
}
NEVER = "never"
PAGE_SIZE = 200
COLUMNS = ["key_id", "name", "state", "scopes", "expires_at", "created_at"]


@click.group()
@shared_options
def keys() -> None:
    """Make API keys, list and revoke them."""


@keys.command()
@click.option("--account", "account_id", metavar="ID", required=True, help="Whose credit the key spends.")
@click.option("--name", default="", help="What you call the key.")
@click.option(
    "--scope",
    "scopes",
    type=OneOrMoreOf(tuple(SCOPES)),
    multiple=True,
    help="What the key may do; repeat it for several.  [default: everything]",
)
@click.option(
    "--expires",
    type=click.Choice(["30", "90", "365", NEVER]),
    default=NEVER,
    show_default=True,
    help="After how many days the key stops working.",
)
@takes_invocation
def create(invocation: Invocation, account_id: str, name: str, scopes: Sequence[list[str]], expires: str) -> None:
    """Make a key. It is shown now and never again."""
    names = [scope for some in scopes for scope in some]
    made = create_key(invocation.services, account_id, name, names, None if expires == NEVER else int(expires))
    invocation.show({**describe(made.key), "api_key": made.api_key})


@keys.command("list")
@click.option("--account", "account_id", metavar="ID", required=True)
@takes_invocation
def list_(invocation: Invocation, account_id: str) -> None:
    """List an account's keys; the keys themselves are not stored."""
    invocation.show_list([describe(key) for key in every_key(invocation.services, account_id)], COLUMNS)


@keys.command()
@click.argument("key_id")
@takes_invocation
def revoke(invocation: Invocation, key_id: str) -> None:
    """Revoke a key. It is refused everywhere when the command returns."""
    invocation.show(describe(ask(invocation.services.keys.RevokeKey, RevokeKeyRequest(key_id=key_id)).key))


def create_key(
    services: Services, account_id: str, name: str, scopes: Sequence[str], expires_after_days: int | None
) -> CreateKeyResponse:
    request = CreateKeyRequest(
        account_id=account_id,
        name=name,
        scopes=[SCOPES[scope] for scope in dict.fromkeys(scopes)],
        expires_after_days=expires_after_days,
    )
    return ask(services.keys.CreateKey, request, repeatable=False)


def every_key(services: Services, account_id: str) -> Iterator[Key]:
    page_token = ""
    while True:
        request = ListKeysRequest(account_id=account_id, page_size=PAGE_SIZE, page_token=page_token)
        page = ask(services.keys.ListKeys, request)
        yield from page.keys
        page_token = page.next_page_token
        if not page_token:
            return


def describe(key: Key) -> dict[str, Any]:
    # No scopes means all of them: the list says what the key may do.
    scopes = [name for name, scope in SCOPES.items() if scope in key.scopes or not key.scopes]
    return {
        "key_id": key.key_id,
        "account_id": key.account_id,
        "name": key.name,
        "scopes": scopes,
        "expires_at": rfc3339_of(key.expire_time) if key.HasField("expire_time") else None,
        "state": STATES.get(key.state, "unknown"),
        "created_at": rfc3339_of(key.create_time),
        "revoked_at": rfc3339_of(key.revoke_time) if key.HasField("revoke_time") else None,
    }
