"""`legato users`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cli.command import HelpLine, Invocation, command_group
from cli.connection import ServiceStubs, call_service, every_page
from cli.descriptions import described, rfc3339, value_of
from cli.settings import ConsoleSettings, read_settings
from cli.supervision.data_folder import is_supervised, read_processes
from cli.values import period_options, put_period
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.accounts_pb2 import DeleteUserRequest
from legato_protos.type.v1.access_token_pb2 import AccountRole
from services.chassis.changes import to_changes

ROLES = {
    "owner": AccountRole.ACCOUNT_ROLE_OWNER,
    "member": AccountRole.ACCOUNT_ROLE_MEMBER,
    "viewer": AccountRole.ACCOUNT_ROLE_VIEWER,
}
COLUMNS = ["user_id", "name", "email", "accounts", "is_operator", "passkeys", "last_seen_hour", "disabled_at"]
PAGE_SIZE = 200
DEFAULT_ORIGIN: Final = "http://localhost:8081"
EVENT_COLUMNS = ["event_no", "time", "action", "user_id", "account_id", "object_id", "changes"]

HELP = HelpLine(60, "Invite and disable the users of the web console.")
users = command_group("users", HELP.text)


@users.command()
@click.option("--name", required=True, help="The user's name.")
@click.option("--email", default="", help="The user's email address, to tell users apart; nothing is sent.")
@click.option("--account", "account_id", metavar="ID", default="", help="The account that the user belongs to.")
@click.option(
    "--role", type=click.Choice(list(ROLES)), default="owner", show_default=True, help="The role in that account."
)
def invite(invocation: Invocation, name: str, email: str, account_id: str, role: str) -> None:
    """Create a user, and a link that signs them in. It is shown once, and works once within a week."""
    request = pb.CreateUserRequest(name=name, email=email, account_id=account_id, role=ROLES[role])
    made = call_service(invocation.services.users.CreateUser, request, repeatable=False)
    link, expires_at = link_of(made.code, console_origin(invocation.data)), rfc3339(made.code_expire_time)
    invocation.show({**describe(made.user, []), "link": link, "link_expires_at": expires_at})


@users.command("list")
def list_(invocation: Invocation) -> None:
    """List all users."""
    invocation.show_list([describe(*listed) for listed in every_user(invocation.services)], COLUMNS)


@users.command("sign-in-link")
@click.argument("user_id")
def sign_in_link(invocation: Invocation, user_id: str) -> None:
    """Create a link that signs a user in, once within ten minutes. Using it ends the user's other sessions."""
    invocation.show(create_link(invocation.services, user_id, console_origin(invocation.data)))


@users.command()
@click.argument("user_id")
@click.option("--undo", is_flag=True, help="Let the user sign in again.")
def disable(invocation: Invocation, user_id: str, undo: bool) -> None:
    """End a user's sessions and let them sign in no more. Their keys stay valid: those are the account's."""
    request = pb.DisableUserRequest(user_id=user_id, enable=undo)
    invocation.show(describe(call_service(invocation.services.users.DisableUser, request).user, []))


@users.command()
@click.argument("user_id")
def delete(invocation: Invocation, user_id: str) -> None:
    """Erase a user for good, and revoke the keys that they made. An account keeps at least one owner."""
    deleted = call_service(
        invocation.services.accounts.DeleteUser, DeleteUserRequest(user_id=user_id), repeatable=False
    )
    counts = described(deleted, "memberships", "revoked_keys", "sessions", "sign_in_ways")
    invocation.show({"user_id": user_id, **counts})


@users.command("set-operator")
@click.argument("user_id")
@click.option("--undo", is_flag=True, help="Make the user an operator no longer.")
def set_operator(invocation: Invocation, user_id: str, undo: bool) -> None:
    """Make a user an operator, who may administer every account in the operators' console."""
    request = pb.SetOperatorRequest(user_id=user_id, is_operator=not undo)
    invocation.show(describe(call_service(invocation.services.users.SetOperator, request).user, []))


@users.command("audit-log")
@click.option("--account", "account_id", metavar="ID", default="", help="Only events of this account.")
@click.option("--user", "user_id", metavar="ID", default="", help="Only what this user did.")
@click.option("--object", "object_id", metavar="ID", default="", help="Only what was done to this, such as a key.")
@click.option("--action", default="", help="Only this action, such as key.created, or this kind of it, such as key.")
@period_options
@click.option("--refused", "only_refused", is_flag=True, help="Only what was refused.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of events.")
def audit_log(invocation: Invocation, start: datetime | None, end: datetime | None, limit: int, **wanted: Any) -> None:
    """List what users and operators did and what changed, the newest first."""
    request = pb.ListAuditEventsRequest(page_size=limit, **wanted)
    put_period(request, start, end)
    events = call_service(invocation.services.audit.ListAuditEvents, request).events
    shown = [describe_event(event) for event in events]
    if not invocation.json:
        for each in shown:
            each["changes"] = [_in_a_line(change) for change in each["changes"]]
    invocation.show_list(shown, EVENT_COLUMNS)


def every_user(services: ServiceStubs) -> Iterator[tuple[pb.User, list[pb.Membership]]]:
    for page in every_page(services.users.ListUsers, pb.ListUsersRequest(page_size=PAGE_SIZE)):
        for user in page.users:
            yield user, [held.membership for held in page.memberships if held.user_id == user.user_id]


def create_link(services: ServiceStubs, user_id: str, origin: str) -> dict[str, object]:
    made = call_service(services.users.CreateSignInLink, pb.CreateSignInLinkRequest(user_id=user_id), repeatable=False)
    return {"user_id": user_id, "link": link_of(made.code, origin), "link_expires_at": rfc3339(made.expire_time)}


def link_of(code: str, origin: str) -> str:
    """Returns the address. The code is in its fragment, which browsers send to no server."""
    return f"{origin}/sign-in#{code}"


def console_origin(data: Path) -> str:
    """Returns the first origin of the settings; without any, that of the console which `legato up` runs."""
    origins = read_settings(ConsoleSettings).console_url or _running_console(data) or DEFAULT_ORIGIN
    return origins.split(",")[0].strip().rstrip("/")


def _running_console(data: Path) -> str:
    try:
        return str(read_processes(data).get("console_url", "")) if is_supervised(data) else ""
    except (OSError, ValueError):
        return ""


def describe_event(event: pb.AuditEvent) -> dict[str, Any]:
    shown = described(event, *EVENT_COLUMNS[:-1], "session_id", "network", "user_name", "account_name", "object_name")
    return {
        **shown,
        "refused": event.outcome == pb.AuditOutcome.AUDIT_OUTCOME_REFUSED,
        "changes": [msgspec.to_builtins(change) for change in to_changes(event.changes)],
    }


def _in_a_line(change: dict[str, object]) -> str:
    before, after = (_printed(change[name]) for name in ("before", "after"))
    return f"{change['field']}: {before} -> {after}"


def _printed(value: object) -> str:
    return "none" if value is None else ",".join(value) if isinstance(value, list | tuple) else str(value)


def describe(user: pb.User, memberships: list[pb.Membership]) -> dict[str, object]:
    accounts = [f"{held.account_id} ({value_of(held, 'role') or 'unknown'})" for held in memberships]
    rest = described(user, "is_operator", "passkeys", "created_at", "last_seen_hour", "disabled_at")
    return {**described(user, "user_id", "name", "email"), "accounts": accounts, **rest}
