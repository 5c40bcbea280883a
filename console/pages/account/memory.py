"""Memory: the notes that chats of the account are given."""

from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from console.account.grounding import if_configured, read_unless_away
from console.display.language import _
from console.web.forms import Refusal, Rules
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# Notes have up to 2,000 characters; a list shows how each begins, its page all of it.
SHOWN_CHARACTERS: Final = 280


async def show(visit: Visit, refusal: Refusal | None = None, *, sought: str = "") -> Response:
    shown = await read_unless_away(visit, _notes(visit), "memory.html")
    if isinstance(shown, Response):
        return shown
    notes, sources = shown
    # No chat gets a note that cannot be decrypted.
    tokens = sum(note.tokens for note in notes if note.text)
    is_configured = sources.config.HasField("memory")
    return visit.render(
        "memory.html",
        refusal=refusal,
        sources=sources,
        # The newest first: it is what the user just wrote.
        notes=[note for note in notes if sought.casefold() in note.text.casefold()][::-1],
        count=len(notes),
        tokens=tokens,
        # Does every chat get all notes, as far as their counts tell?
        fits=not is_configured or tokens <= sources.config.memory.prompt_tokens_most,
        sought=sought,
        shown_characters=SHOWN_CHARACTERS,
    )


async def search(visit: Visit) -> Response:
    """Shows the notes that contain what was looked for. A form posts it: it stands in no address and no log."""
    return await show(visit, sought=visit.form.get("sought"))


@shows_again(show, "text")
async def add(visit: Visit) -> Response:
    request = pb.AddNoteRequest(account_id=visit.account_id, text=visit.form.get("text"))
    await visit.router.grounding.AddNote(request)
    return visit.redirect("/memory", "note-added")


async def show_one(visit: Visit, refusal: Refusal | None = None) -> Response:
    return visit.render("note.html", refusal=refusal, note=await _find(visit))


@shows_again(show_one, "text")
async def edit(visit: Visit) -> Response:
    request = pb.UpdateNoteRequest(
        account_id=visit.account_id, note_id=visit.path_value("note_id"), text=visit.form.get("text")
    )
    await visit.router.grounding.UpdateNote(request)
    return visit.redirect("/memory", "note-changed")


async def remove(visit: Visit) -> Response:
    request = pb.RemoveNoteRequest(account_id=visit.account_id, note_id=visit.path_value("note_id"))
    await visit.router.grounding.RemoveNote(request)
    return visit.redirect("/memory", "note-removed")


@shows_again(show, reasons=())
async def forget_all(visit: Visit) -> Response:
    with Rules(visit.form) as rules:
        is_confirmed = visit.form.get("confirmed") == "yes"
        rules.require(is_confirmed, "confirmed", _("Nothing was removed: tick the box first."))
    done = await visit.router.grounding.RemoveAllNotes(pb.RemoveAllNotesRequest(account_id=visit.account_id))
    return visit.redirect("/memory", "notes-forgotten", done.removed)


async def _find(visit: Visit) -> pb.Note:
    for note in await _notes(visit):
        if note.note_id == visit.path_value("note_id"):
            return note
    raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="note"))


async def _notes(visit: Visit) -> Sequence[pb.Note]:
    request = pb.ListNotesRequest(account_id=visit.account_id)
    listed = await if_configured(visit.router.grounding.ListNotes(request))
    return () if listed is None else listed.notes
