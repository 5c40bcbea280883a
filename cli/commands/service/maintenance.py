"""`legato maintenance`."""

import click

from cli.command import HelpLine, Invocation, command_group
from cli.connection import call_service
from cli.descriptions import described
from legato_protos.auth.v1 import auth_pb2 as pb

DEFAULT_MESSAGE = "The service is under maintenance. Please retry later."
DEFAULT_RETRY_AFTER_S = 60
LONGEST_RETRY_AFTER_S = 86_400

HELP = HelpLine(180, "Refuse new chats for a while, on every edge.")
maintenance = command_group("maintenance", HELP.text)


@maintenance.command()
@click.option(
    "--message", default=DEFAULT_MESSAGE, show_default=True, help="The error message that clients get, one line."
)
@click.option(
    "--retry-after",
    "retry_after_s",
    type=click.IntRange(1, LONGEST_RETRY_AFTER_S),
    default=DEFAULT_RETRY_AFTER_S,
    show_default=True,
    help="Seconds after which clients should retry (Retry-After).",
)
def on(invocation: Invocation, message: str, retry_after_s: int) -> None:
    """Refuse new chats; running ones continue. It is in effect everywhere when the command returns."""
    request = pb.StartMaintenanceRequest(message=message, retry_after_s=retry_after_s)
    invocation.show(describe(call_service(invocation.services.auth.StartMaintenance, request).maintenance))


@maintenance.command()
def off(invocation: Invocation) -> None:
    """Admit chats again. It is in effect everywhere when the command returns."""
    response = call_service(invocation.services.auth.EndMaintenance, pb.EndMaintenanceRequest())
    invocation.show(describe(response.maintenance))


@maintenance.command()
def status(invocation: Invocation) -> None:
    """Show whether maintenance is on, and its message."""
    response = call_service(invocation.services.auth.GetMaintenance, pb.GetMaintenanceRequest())
    invocation.show(describe(response.maintenance))


def describe(current: pb.Maintenance) -> dict[str, object]:
    names = ("message", "retry_after_s", "started_at")
    if not current.is_on:
        return {"maintenance": "off", **dict.fromkeys(names)}
    return {"maintenance": "on", **described(current, *names)}
