"""`legato attachments`: the documents that an account's chats without tools may draw on."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click
import grpc

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.connection import CallRefused, ServiceStubs, call_service
from cli.descriptions import described
from cli.output import Bar
from cli.values import account_argument
from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.rpc.channel import from_rpc_error

PIECE_BYTES = 64 * 1024
# The largest documents have some hundred thousand words to remove from the index, one by one.
REMOVAL_TIMEOUT_S = 600.0
COLUMNS = ["attachment_id", "name", "kind", "size_bytes", "pages", "passages", "created_at"]
# The label of each stage, and the progress in percent at its beginning and end.
STAGES = {
    pb.ATTACHMENT_STAGE_RECEIVING: ("sending", 0, 20),
    pb.ATTACHMENT_STAGE_READING: ("reading", 20, 60),
    pb.ATTACHMENT_STAGE_INDEXING: ("indexing", 60, 100),
}

HELP = HelpLine(120, "Manage the documents for an account's chats.")
attachments = command_group("attachments", HELP.text)


@attachments.command()
@account_argument
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def add(invocation: Invocation, account_id: str, file: Path) -> None:
    """Add a document: text, Markdown or HTML in UTF-8, or a PDF with text in it."""
    get_account(invocation.services, account_id)
    with closing(Bar(sys.stderr)) as bar:
        attachment = add_attachment(invocation.services, account_id, file, bar)
    invocation.show(_describe(attachment))


@attachments.command("list")
@account_argument
def list_(invocation: Invocation, account_id: str) -> None:
    """List an account's documents. One without a name is damaged, or its key is lost."""
    get_account(invocation.services, account_id)
    request = pb.ListAttachmentsRequest(account_id=account_id)
    found = call_service(invocation.services.grounding.ListAttachments, request).attachments
    invocation.show_list([_describe(attachment) for attachment in found], COLUMNS)


@attachments.command()
@account_argument
@click.argument("attachment_id", metavar="ATTACHMENT")
def remove(invocation: Invocation, account_id: str, attachment_id: str) -> None:
    """Delete a document. It is erased completely when the command returns."""
    request = pb.RemoveAttachmentRequest(account_id=account_id, attachment_id=attachment_id)
    remove_from = invocation.services.grounding.RemoveAttachment
    call_service(remove_from, request, repeatable=False, timeout_s=REMOVAL_TIMEOUT_S)
    invocation.show({"removed": attachment_id})


def add_attachment(services: ServiceStubs, account_id: str, file: Path, bar: Bar) -> pb.Attachment:
    try:
        for response in services.grounding.AddAttachment(_pieces(account_id, file)):
            if response.HasField("attachment"):
                return response.attachment
            what, begin, end = STAGES[response.progress.stage]
            part = response.progress.done / max(1, response.progress.total)
            bar.show(what, round(begin + (end - begin) * part), 100)
    except grpc.RpcError as error:
        refusal = from_rpc_error(error, "The router")
        raise CallRefused(refusal.message, refusal.reason) from None
    raise click.ClickException("the router closed the call without a result")


def _pieces(account_id: str, file: Path) -> Iterator[pb.AddAttachmentRequest]:
    with file.open("rb") as opened:
        # A file's name is bytes, and may not be valid text.
        name = os.fsencode(file.name).decode(errors="replace")
        # An empty document is sent as one empty piece.
        head = pb.AddAttachmentRequest(account_id=account_id, name=name, size_bytes=file.stat().st_size)
        head.piece = opened.read(PIECE_BYTES)
        yield head
        while piece := opened.read(PIECE_BYTES):
            yield pb.AddAttachmentRequest(piece=piece)


def _describe(attachment: pb.Attachment) -> dict[str, object]:
    shown = described(attachment, *COLUMNS)
    return {**shown, "kind": shown["kind"] or "unspecified"}
