"""Documents: what chats of the account may quote. A file goes to the router in pieces, as it arrives."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import grpc.aio
from starlette.responses import JSONResponse, Response, StreamingResponse

from console.account.grounding import if_configured, read_unless_away
from console.display.language import N_, _
from console.display.sentences import in_words
from console.services import open_stream
from console.web.forms import Refusal, status_of
from console.web.refusals import shows_again
from console.web.uploads import Upload
from console.web.visit import Visit
from legato_protos.router.v1 import grounding_pb2 as pb
from services.chassis.errors import LegatoError, Reason, unavailable
from services.chassis.sentence import Sentence

KINDS: Final = {
    pb.DOCUMENT_KIND_TEXT: N_("Text"),
    pb.DOCUMENT_KIND_HTML: "HTML",
    pb.DOCUMENT_KIND_PDF: "PDF",
}
STAGES: Final = {pb.ATTACHMENT_STAGE_READING: "reading", pb.ATTACHMENT_STAGE_INDEXING: "indexing"}
# What a user can do something about is said beside the form; anything else is a page of its own.
SHOWN_AT_THE_FORM: Final = (
    Reason.REQUEST_INVALID,
    Reason.BODY_TOO_LARGE,
    Reason.BODY_TIMEOUT,
    Reason.TOO_MANY_AT_ONCE,
    Reason.SATURATED,
)
# The largest documents have some hundred thousand words to remove from the index.
REMOVAL_TIMEOUT_S: Final = 120.0
# Lines of JSON, which a proxy should pass on as they come.
LINES_HEADERS: Final = {"x-accel-buffering": "no"}

Call = grpc.aio.StreamStreamCall[pb.AddAttachmentRequest, pb.AddAttachmentResponse]


async def show(visit: Visit, refusal: Refusal | None = None) -> Response:
    request = pb.ListAttachmentsRequest(account_id=visit.account_id)
    listing = if_configured(visit.router.grounding.ListAttachments(request))
    shown = await read_unless_away(visit, listing, "documents.html")
    if isinstance(shown, Response):
        return shown
    listed, sources = shown
    documents = () if listed is None else listed.attachments
    return visit.render(
        "documents.html",
        refusal=refusal,
        sources=sources,
        documents=documents[::-1],
        total_bytes=sum(document.size_bytes for document in documents),
        kinds=KINDS,
    )


@shows_again(show, "document", reasons=SHOWN_AT_THE_FORM, keeps_status=True)
async def add(visit: Visit) -> Response:
    """Adds the document of a form, and answers when it can be used."""
    passages = 0
    async with aclosing(_send(visit)) as progress:
        async for response in progress:
            passages = response.attachment.passages
    return visit.redirect("/documents", "document-added", passages)


async def upload(visit: Visit) -> Response:
    """Adds a document for a script, and tells how far it is, in lines of JSON. What is refused before it was read has
    a status of its own."""
    progress = _send(visit)
    try:
        first = await anext(progress)
        while first.progress.stage == pb.ATTACHMENT_STAGE_RECEIVING:
            first = await anext(progress)
    except StopAsyncIteration:
        raise unavailable("The chat service") from None
    except LegatoError as error:
        return JSONResponse({"message": in_words(error.sentence)}, status_of(error))
    return StreamingResponse(_lines(visit, first, progress), media_type="application/x-ndjson", headers=LINES_HEADERS)


async def remove(visit: Visit) -> Response:
    request = pb.RemoveAttachmentRequest(account_id=visit.account_id, attachment_id=visit.form.get("attachment_id"))
    await visit.router.grounding.RemoveAttachment(request, timeout=REMOVAL_TIMEOUT_S)
    return visit.redirect("/documents", "document-removed")


async def _lines(
    visit: Visit, first: pb.AddAttachmentResponse, rest: AsyncIterator[pb.AddAttachmentResponse]
) -> AsyncIterator[bytes]:
    try:
        yield _line(_describe(first))
        async for response in rest:
            yield _line(_describe(response))
    except LegatoError as error:
        yield _line({"message": in_words(error.sentence)})
    except Exception as error:
        visit.console.log.failure("page.failed", error)
        yield _line({"message": _("Something went wrong. Try again in a moment.")})


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _describe(response: pb.AddAttachmentResponse) -> dict[str, object]:
    if response.HasField("attachment"):
        return {"stage": "done", "passages": response.attachment.passages}
    progress = response.progress
    return {"stage": STAGES.get(progress.stage, ""), "done": progress.done, "total": progress.total}


async def _send(visit: Visit) -> AsyncGenerator[pb.AddAttachmentResponse]:
    """Passes the file of a form on to the router, and yields what the router says."""
    given = Upload(visit.request)
    await given.open()
    if not given.name:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("file_missing"), param="document")
    with open_stream("The chat service", visit.router.grounding.AddAttachment()) as call:
        head = pb.AddAttachmentRequest(account_id=visit.account_id, name=given.name, size_bytes=given.size_bytes)
        await call.write(head)
        # The router says what it has after each piece: the next one is sent then. A write that fails, since the call
        # has ended meanwhile, would not tell why the router ended it.
        yield await _read(call)
        ended = asyncio.ensure_future(call.code())
        try:
            pieces = given.pieces()
            while piece := await _next_piece(pieces, ended):
                await call.write(pb.AddAttachmentRequest(piece=piece))
                yield await _read(call)
        finally:
            ended.cancel()
        await call.done_writing()
        while (response := await call.read()) is not grpc.aio.EOF:
            yield response  # type: ignore[misc]


async def _next_piece(pieces: AsyncIterator[bytes], ended: "asyncio.Future[grpc.StatusCode]") -> bytes:
    """Waits for the next piece of a file; nothing is left to wait for if the router has ended the call, as it does if
    the file arrives too slowly. Returns no bytes in both cases."""
    arriving = asyncio.ensure_future(anext(pieces, b""))
    try:
        await asyncio.wait((arriving, ended), return_when=asyncio.FIRST_COMPLETED)
        return arriving.result() if arriving.done() else b""
    finally:
        arriving.cancel()


async def _read(call: Call) -> pb.AddAttachmentResponse:
    response = await call.read()
    if response is grpc.aio.EOF:
        raise unavailable("The chat service")
    return response  # type: ignore[return-value]
