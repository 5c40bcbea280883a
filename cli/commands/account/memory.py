"""`legato memory`: the notes that an account's chats without tools are given."""

import io
import sys

import click

from cli.command import HelpLine, Invocation, command_group
from cli.commands.account.accounts import get_account
from cli.connection import call_service
from cli.descriptions import described
from cli.values import account_argument
from legato_protos.router.v1 import grounding_pb2 as pb

COLUMNS = ["note_id", "text", "created_at"]

HELP = HelpLine(110, "Manage the notes for an account's chats.")
memory = command_group("memory", HELP.text)


@memory.command()
@account_argument
@click.argument("text", required=False)
def add(invocation: Invocation, account_id: str, text: str | None) -> None:
    """Add a note. Without TEXT it is read from stdin, which keeps it out of the process list."""
    get_account(invocation.services, account_id)
    request = pb.AddNoteRequest(account_id=account_id, text=_read_stdin() if text is None else text)
    invocation.show(_describe(call_service(invocation.services.grounding.AddNote, request, repeatable=False).note))


@memory.command("list")
@account_argument
def list_(invocation: Invocation, account_id: str) -> None:
    """List an account's notes. One without a text is damaged, or its key is lost."""
    get_account(invocation.services, account_id)
    notes = call_service(invocation.services.grounding.ListNotes, pb.ListNotesRequest(account_id=account_id)).notes
    invocation.show_list([_describe(note) for note in notes], COLUMNS)


@memory.command()
@account_argument
@click.argument("note_id", metavar="NOTE")
@click.argument("text", required=False)
def edit(invocation: Invocation, account_id: str, note_id: str, text: str | None) -> None:
    """Replace the text of a note. Without TEXT it is read from stdin."""
    given = _read_stdin() if text is None else text
    request = pb.UpdateNoteRequest(account_id=account_id, note_id=note_id, text=given)
    invocation.show(_describe(call_service(invocation.services.grounding.UpdateNote, request, repeatable=False).note))


@memory.command()
@account_argument
@click.argument("note_id", metavar="NOTE")
def remove(invocation: Invocation, account_id: str, note_id: str) -> None:
    """Delete a note. It is erased completely when the command returns."""
    request = pb.RemoveNoteRequest(account_id=account_id, note_id=note_id)
    call_service(invocation.services.grounding.RemoveNote, request, repeatable=False)
    invocation.show({"removed": note_id})


@memory.command()
@account_argument
def clear(invocation: Invocation, account_id: str) -> None:
    """Delete all notes of an account."""
    request = pb.RemoveAllNotesRequest(account_id=account_id)
    removed = call_service(invocation.services.grounding.RemoveAllNotes, request, repeatable=False).removed
    invocation.show({"removed": removed})


def _read_stdin() -> str:
    try:
        return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8").read()
    except UnicodeDecodeError:
        raise click.UsageError("a note must be UTF-8 text.") from None


def _describe(note: pb.Note) -> dict[str, object]:
    return described(note, *COLUMNS)
