"""Memory: the notes that chats of the account are given."""

import asyncio
from collections.abc import Sequence
from typing import Final

from starlette.responses import Response

from console.account.grounding import GroundingSources, SourceState, is_not_configured, read_sources, require_role
from console.web.visit import Visit
from protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason

# Notes have up to 2,000 characters; a list shows how each begins, its page all of it.
SHOWN_CHARACTERS: Final = 280


async def show(visit: Visit) -> Response:
    if not visit.who.account_id:
        return visit.render("no_account.html")
    return await _page(visit)


async def search(visit: Visit) -> Response:
    """Shows the notes that contain what was looked for. A form posts it: it stands in no address and no log."""
    return await _page(visit, sought=visit.form.get("sought"))


async def add(visit: Visit) -> Response:
    require_role(visit)
    request = pb.AddNoteRequest(account_id=visit.who.account_id, text=visit.form.get("text"))
    try:
        await visit.router.grounding.AddNote(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return await _page(visit, given=request.text, problem=error.message, status=400)
    return visit.redirect("/memory", "note-added")


async def show_one(visit: Visit) -> Response:
    return _one(visit, await _find(visit))


async def edit(visit: Visit) -> Response:
    require_role(visit)
    note_id: str = visit.request.path_params["note_id"]
    request = pb.UpdateNoteRequest(account_id=visit.who.account_id, note_id=note_id, text=visit.form.get("text"))
    try:
        await visit.router.grounding.UpdateNote(request)
    except LegatoError as error:
        if error.reason is not Reason.REQUEST_INVALID:
            raise
        return _one(visit, await _find(visit), request.text, error.message, 400)
    return visit.redirect("/memory", "note-changed")


async def remove(visit: Visit) -> Response:
    require_role(visit)
    note_id: str = visit.request.path_params["note_id"]
    request = pb.RemoveNoteRequest(account_id=visit.who.account_id, note_id=note_id)
    await visit.router.grounding.RemoveNote(request)
    return visit.redirect("/memory", "note-removed")


async def forget_all(visit: Visit) -> Response:
    require_role(visit)
    if visit.form.get("confirmed") != "yes":
        return await _page(visit, unconfirmed=True, status=400)
    request = pb.RemoveAllNotesRequest(account_id=visit.who.account_id)
    done = await visit.router.grounding.RemoveAllNotes(request)
    return visit.redirect("/memory", "notes-forgotten", done.removed)


async def _page(
    visit: Visit,
    *,
    sought: str = "",
    given: str = "",
    problem: str = "",
    unconfirmed: bool = False,
    status: int = 200,
) -> Response:
    require_role(visit)
    try:
        notes, sources = await asyncio.gather(_notes(visit), read_sources(visit))
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        return visit.render("memory.html", 503, sources=None, away=error.message)
    shown = [note for note in notes if sought.casefold() in note.text.casefold()]
    return visit.render(
        "memory.html",
        status,
        sources=sources,
        # The newest first: it is what somebody just wrote.
        notes=shown[::-1],
        count=len(notes),
        tokens=sum(note.tokens for note in notes),
        fits=_fit(notes, sources),
        sought=sought,
        given=given,
        problem=problem,
        unconfirmed=unconfirmed,
        shown_characters=SHOWN_CHARACTERS,
    )


def _fit(notes: Sequence[pb.Note], sources: GroundingSources) -> bool:
    """Returns whether every chat gets all notes, as far as their counts tell."""
    if sources.memory is SourceState.NOT_CONFIGURED:
        return True
    return sum(note.tokens for note in notes) <= sources.config.memory.prompt_tokens_most


def _one(visit: Visit, note: pb.Note, given: str | None = None, problem: str = "", status: int = 200) -> Response:
    return visit.render("note.html", status, note=note, given=note.text if given is None else given, problem=problem)


async def _find(visit: Visit) -> pb.Note:
    require_role(visit)
    for note in await _notes(visit):
        if note.note_id == visit.request.path_params["note_id"]:
            return note
    raise LegatoError(Reason.NOT_FOUND, "There is no such note.")


async def _notes(visit: Visit) -> Sequence[pb.Note]:
    request = pb.ListNotesRequest(account_id=visit.who.account_id)
    try:
        return (await visit.router.grounding.ListNotes(request)).notes
    except LegatoError as error:
        if not is_not_configured(error):
            raise
        return ()
