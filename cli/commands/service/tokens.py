"""`legato tokens`."""

import asyncio
from typing import BinaryIO

import click

from cli.command import HelpLine, Invocation, command
from cli.connection import CallRefused, call_service
from legato_protos.router.v1.router_pb2 import ChatOpen, CountTokensRequest
from services.chassis.errors import LegatoError

HELP = HelpLine(165, "Count the tokens of a chat's prompt.")


@command()
@click.argument("file", type=click.File("rb"))
def tokens(invocation: Invocation, file: BinaryIO) -> None:
    """Count the prompt of FILE, a request as for /v1/chat/completions, as the first model of its class usually counts:
    with the tools and the system prompt of the service. No model is asked. "-" reads standard input."""
    from edge.wire.chat_request import decode_chat

    try:
        body = asyncio.run(decode_chat(file.read()))
    except LegatoError as error:
        raise CallRefused(error.message, error.reason, error.param or "") from None
    chat = ChatOpen(
        model=body.model,
        tool_choice_json=body.tool_choice_json,
        parameters_json=body.parameters_json,
        tools_json=body.tools_json,
        messages_json=body.messages_json,
    )
    counted = call_service(invocation.services.models.CountTokens, CountTokensRequest(chat=chat)).tokens
    invocation.report(f"{counted} tokens", {"prompt_tokens": counted})
