"""`legato keys`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from cli.command import HelpLine, Invocation, command_group
from cli.connection import ServiceStubs, call_service, every_page
from cli.descriptions import allowed_classes, described, value_of
from cli.spend_limits import spend_limit_options, to_spend_limits
from cli.values import ALL_CLASSES, LIMITS, OneOrMoreOf, classes_option, limit_options, put_classes
from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.metering.v1.spend_limits_pb2 import SpendLimits
from services.chassis.money import format_usd

SCOPES = {"inference": pb.Scope.SCOPE_INFERENCE, "models": pb.Scope.SCOPE_MODELS, "usage": pb.Scope.SCOPE_USAGE}
NEVER = "never"
PAGE_SIZE = 200
UNUSED_DAYS_MOST = 36_500
COLUMNS = ["key_id", "name", "state", "scopes", "expires_at", "created_at", "last_used_hour"]

HELP = HelpLine(40, "Create, list and revoke API keys.")
keys = command_group("keys", HELP.text)


@keys.command()
@click.option(
    "--account", "account_id", metavar="ID", required=True, help="The account that pays for the key's requests."
)
@click.option("--name", default="", help="A name for the key.")
@click.option(
    "--scope",
    "scopes",
    type=OneOrMoreOf(tuple(SCOPES)),
    multiple=True,
    help="A scope of the key; repeat for several.  [default: all scopes]",
)
@click.option(
    "--expires",
    type=click.Choice(["30", "90", "365", NEVER]),
    default=NEVER,
    show_default=True,
    help="Days until the key expires.",
)
@classes_option("The classes that the key may use, such as mezzo,forte.  [default: whatever the account may use]")
@limit_options("for this key.  [default: the account's limit]")
@spend_limit_options
def create(
    invocation: Invocation,
    account_id: str,
    name: str,
    scopes: Sequence[list[str]],
    expires: str,
    classes: list[str] | None,
    day: int | None,
    month: int | None,
    total: int | None,
    **limits: Any,
) -> None:
    """Create a key with all that limits it. It is shown now and never again."""
    names = [scope for some in scopes for scope in some]
    days = None if expires == NEVER else int(expires)
    spend_limits = to_spend_limits(SpendLimits(), {"day": day, "month": month, "total": total})
    made = create_key(invocation.services, account_id, name, names, days, classes or (), limits, spend_limits)
    if spend_limits != SpendLimits() and not made.HasField("spend_limits"):
        raise click.ClickException(
            f"auth is of an older release, which knows no spend limits: revoke {made.key.key_id}, which nobody has."
        )
    amounts = {
        f"spend_{field.name.removesuffix('_nanos')}_usd": nanos for field, nanos in made.spend_limits.ListFields()
    }
    spending = {name: format_usd(nanos) for name, nanos in amounts.items()}
    invocation.show({**describe(made.key), **spending, "api_key": made.api_key})


@keys.command("list")
@click.option("--account", "account_id", metavar="ID", required=True)
@click.option(
    "--unused",
    "unused_for_days",
    type=click.IntRange(0, UNUSED_DAYS_MOST),
    metavar="DAYS",
    help="Only keys that were not used for so many days; with 0, those that were never used.",
)
def list_(invocation: Invocation, account_id: str, unused_for_days: int | None) -> None:
    """List an account's keys; the keys themselves are not stored."""
    things = [describe(key) for key in every_key(invocation.services, account_id, unused_for_days)]
    # The columns of classes and limits are shown only if a key has its own.
    own = [name for name in ("classes", *LIMITS) if any(thing[name] is not None for thing in things)]
    invocation.show_list(things, [*COLUMNS, *own])


@keys.command("set")
@click.argument("key_id")
@classes_option("The classes that the key may use, such as mezzo,forte; `all` for whatever the account may use.")
@limit_options("for this key only; 0 restores the account's limit.")
def set_(invocation: Invocation, key_id: str, classes: list[str] | None, **limits: Any) -> None:
    """Set a key's own limits and classes. They are in effect everywhere when the command returns."""
    if all(given is None for given in (classes, *limits.values())):
        raise click.UsageError("nothing to change: give a limit or --classes.")
    request = pb.UpdateKeyRequest(key_id=key_id, **limits)
    put_classes(request, classes)
    invocation.show(describe(call_service(invocation.services.keys.UpdateKey, request).key))


@keys.command()
@click.argument("key_id")
def revoke(invocation: Invocation, key_id: str) -> None:
    """Revoke a key. It is refused everywhere when the command returns."""
    invocation.show(describe(call_service(invocation.services.keys.RevokeKey, pb.RevokeKeyRequest(key_id=key_id)).key))


@keys.command()
@click.argument("key_id")
def show(invocation: Invocation, key_id: str) -> None:
    """Show one key, and whose it is, by its public part: key_ and the 16 characters after sk-legato-."""
    found = call_service(invocation.services.keys.GetKey, pb.GetKeyRequest(key_id=key_id))
    owner = {"account_name": found.account.name, **described(found.key, "created_by", "caller")}
    invocation.show({**describe(found.key), **owner})


@keys.command()
def peppers(invocation: Invocation) -> None:
    """Count the active keys by the version of the pepper they need. An unused version may be removed."""
    counts = call_service(invocation.services.keys.CountKeysByPepper, pb.CountKeysByPepperRequest()).counts
    columns = ["pepper_version", "keys", "last_used_hour"]
    invocation.show_list([described(count, *columns) for count in counts], columns)


def create_key(
    services: ServiceStubs,
    account_id: str,
    name: str,
    scopes: Sequence[str],
    expires_after_days: int | None,
    classes: Sequence[str] = (),
    limits: Mapping[str, Any] = {},
    spend_limits: SpendLimits | None = None,
) -> pb.CreateKeyResponse:
    """Creates a key; without `classes` it may use whatever the account may."""
    request = pb.CreateKeyRequest(
        account_id=account_id,
        name=name,
        scopes=[SCOPES[scope] for scope in dict.fromkeys(scopes)],
        expires_after_days=expires_after_days,
        spend_limits=spend_limits,
        **limits,
    )
    if classes and ALL_CLASSES not in classes:
        request.allowed_classes.class_ids.extend(dict.fromkeys(classes))
    return call_service(services.keys.CreateKey, request, repeatable=False)


def every_key(services: ServiceStubs, account_id: str, unused_for_days: int | None = None) -> Iterator[pb.Key]:
    request = pb.ListKeysRequest(account_id=account_id, page_size=PAGE_SIZE, unused_for_days=unused_for_days)
    for page in every_page(services.keys.ListKeys, request):
        yield from page.keys


def describe(key: pb.Key) -> dict[str, object]:
    # No scopes means all of them: the list names what the key may do.
    scopes = [name for name, scope in SCOPES.items() if scope in key.scopes or not key.scopes]
    return {
        **described(key, "key_id", "account_id"),
        "name": key.name,
        "scopes": scopes,
        # None: whatever the account may use.
        "classes": allowed_classes(key),
        **described(key, "expires_at"),
        "state": value_of(key, "state") or "unknown",
        **described(key, "created_at", "revoked_at", "last_used_hour"),
        **described(key, *LIMITS, "pepper_version"),
    }
