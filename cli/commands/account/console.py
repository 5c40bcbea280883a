"""`legato console`."""

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.users import console_origin, create_link, every_user
from cli.connection import ServiceStubs, call_service
from legato_protos.auth.v1.users_pb2 import CreateUserRequest, SetOperatorRequest
from legato_protos.type.v1.access_token_pb2 import AccountRole

FIRST_USER = "Operator"

HELP = HelpLine(70, "Create a link that signs in to the web console.")
console = command_group("console", HELP.text)


@console.command("sign-in-link")
def sign_in_link(invocation: Invocation) -> None:
    """Create a link that signs the first operator in, once within ten minutes.

    If there is no user yet, it creates one: an operator, who belongs to no account.
    """
    invocation.show(first_link(invocation.services, console_origin(invocation.data)))


def first_link(services: ServiceStubs, origin: str, new_account_id: str = "") -> dict[str, object]:
    """Makes a link for the first operator, and that operator if there is no user yet. They own an account only if it
    was made for them just now: any other may be a customer's."""
    listed = [user for user, _ in every_user(services) if not user.HasField("disable_time")]
    operator = next((user for user in listed if user.is_operator), None)
    if operator is None and listed:
        raise click.ClickException("No user is an operator: choose one with `legato users set-operator`.")
    if operator is None:
        owner = AccountRole.ACCOUNT_ROLE_OWNER
        request = CreateUserRequest(name=FIRST_USER, account_id=new_account_id, role=owner)
        operator = call_service(services.users.CreateUser, request, repeatable=False).user
        call_service(services.users.SetOperator, SetOperatorRequest(user_id=operator.user_id, is_operator=True))
    return create_link(services, operator.user_id, origin)
