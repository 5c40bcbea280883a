"""The RPCs of grounding.proto: an owner's notes and documents."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc.aio
import msgspec
from google.protobuf.timestamp_pb2 import Timestamp

from protos.router.v1 import grounding_pb2 as pb
from protos.router.v1 import grounding_pb2_grpc as pb_grpc
from protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log

if TYPE_CHECKING:
    from services.router.completion import PromptPreview
    from services.router.grounding.attachments import Attachments
    from services.router.grounding.grounding import Library
    from services.router.grounding.intake import Intake
    from services.router.grounding.notes import Notes
    from services.router.grounding.records import Attachment, Note

Context = grpc.aio.ServicerContext[Any, Any]

# Composes the prompt of a chat that is not sent.
Preview = Callable[[ChatOpen], Awaitable["PromptPreview"]]

LONGEST_QUESTION = 32_000

_KINDS = {"text": pb.DOCUMENT_KIND_TEXT, "html": pb.DOCUMENT_KIND_HTML, "pdf": pb.DOCUMENT_KIND_PDF}


class GroundingAdminServicer(pb_grpc.GroundingAdminServiceServicer):
    def __init__(
        self,
        library: "Library | None",
        intake: "Intake | None",
        config: pb.GroundingConfig,
        preview: Preview,
        log: Log,
    ) -> None:
        """`library` is None if nothing is configured: calls then fail and name the missing setting."""
        self._library = library
        self._intake = intake
        self._config = config
        self._preview = preview
        self._log = log

    async def AddNote(self, request: pb.AddNoteRequest, context: Context) -> pb.AddNoteResponse:
        note = await self._notes.add(_account_id(request), request.text)
        self._changed("note.added", note.account_id)
        return pb.AddNoteResponse(note=_to_note(note))

    async def ListNotes(self, request: pb.ListNotesRequest, context: Context) -> pb.ListNotesResponse:
        return pb.ListNotesResponse(notes=map(_to_note, await self._notes.list_of(_account_id(request))))

    async def RemoveNote(self, request: pb.RemoveNoteRequest, context: Context) -> pb.RemoveNoteResponse:
        await self._notes.remove(_account_id(request), request.note_id)
        self._changed("note.removed", request.account_id)
        return pb.RemoveNoteResponse()

    async def UpdateNote(self, request: pb.UpdateNoteRequest, context: Context) -> pb.UpdateNoteResponse:
        note = await self._notes.update(_account_id(request), request.note_id, request.text)
        self._changed("note.updated", note.account_id)
        return pb.UpdateNoteResponse(note=_to_note(note))

    async def RemoveAllNotes(self, request: pb.RemoveAllNotesRequest, context: Context) -> pb.RemoveAllNotesResponse:
        removed = await self._notes.remove_all(_account_id(request))
        self._changed("notes.removed", request.account_id)
        return pb.RemoveAllNotesResponse(removed=removed)

    async def AddAttachment(
        self, request_iterator: AsyncIterator[pb.AddAttachmentRequest], context: Context
    ) -> AsyncIterator[pb.AddAttachmentResponse]:
        progress = _Progress()
        adding = asyncio.create_task(self._add(request_iterator, progress))
        try:
            async for response in progress.responses():
                yield response
            await adding
        finally:
            adding.cancel()
            with suppress(asyncio.CancelledError, LegatoError):
                await adding

    async def ListAttachments(self, request: pb.ListAttachmentsRequest, context: Context) -> pb.ListAttachmentsResponse:
        kept = await self._attachments.list_of(_account_id(request))
        return pb.ListAttachmentsResponse(attachments=map(_to_attachment, kept))

    async def RemoveAttachment(
        self, request: pb.RemoveAttachmentRequest, context: Context
    ) -> pb.RemoveAttachmentResponse:
        await self._attachments.remove(_account_id(request), request.attachment_id)
        self._changed("attachment.removed", request.account_id)
        return pb.RemoveAttachmentResponse()

    async def PreviewGrounding(
        self, request: pb.PreviewGroundingRequest, context: Context
    ) -> pb.PreviewGroundingResponse:
        if not 1 <= len(request.question.strip()) <= LONGEST_QUESTION:
            raise LegatoError(
                Reason.REQUEST_INVALID, f"A question must have 1 to {LONGEST_QUESTION:,} characters.", param="question"
            )
        chat = ChatOpen(
            account_id=_account_id(request),
            model=request.model,
            preferred_class=request.preferred_class,
            messages_json=msgspec.json.encode([{"role": "user", "content": request.question}]),
            search=request.search,
            memory=request.memory,
            attachments=request.attachments,
            allowed_classes=request.allowed_classes if request.HasField("allowed_classes") else None,
        )
        return _to_preview(await self._preview(chat), self._config)

    async def GetGroundingConfig(
        self, request: pb.GetGroundingConfigRequest, context: Context
    ) -> pb.GetGroundingConfigResponse:
        return pb.GetGroundingConfigResponse(config=self._config)

    async def _add(self, requests: AsyncIterator[pb.AddAttachmentRequest], progress: "_Progress") -> None:
        try:
            if self._intake is None:
                raise _not_configured("Attachments", "LEGATO_ATTACHMENTS")
            attachment = await self._intake.add(requests, progress)
            self._changed("attachment.added", attachment.account_id)
            progress.put(pb.AddAttachmentResponse(attachment=_to_attachment(attachment)))
        finally:
            progress.put(None)

    @property
    def _notes(self) -> "Notes":
        if self._library is None or self._library.notes is None:
            raise _not_configured("Memory", "LEGATO_MEMORY")
        return self._library.notes

    @property
    def _attachments(self) -> "Attachments":
        if self._library is None or self._library.attachments is None:
            raise _not_configured("Attachments", "LEGATO_ATTACHMENTS")
        return self._library.attachments

    def _changed(self, event: str, account_id: str) -> None:
        if self._library is not None:
            self._library.holdings.look_again(account_id)
        self._log.info(event, account_id=account_id)


class _Progress:
    """Collects the answers about a document that is being added, in their order."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[pb.AddAttachmentResponse | None] = asyncio.Queue()
        # Waits for answers that were told, and not sent yet.
        self.delivered = self._told.join

    def put(self, response: pb.AddAttachmentResponse | None) -> None:
        """Adds an answer; None after the last."""
        self._told.put_nowait(response)

    def tell(self, stage: "pb.AttachmentStage.ValueType", done: int, total: int) -> None:
        self.put(pb.AddAttachmentResponse(progress=pb.AttachmentProgress(stage=stage, done=done, total=total)))

    async def responses(self) -> AsyncIterator[pb.AddAttachmentResponse]:
        while (response := await self._told.get()) is not None:
            yield response
            self._told.task_done()


def _not_configured(what: str, variable: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, f"{what} is not configured: the router needs {variable}=true.")


def _account_id(request: Any) -> str:
    account_id: str = request.account_id
    if not account_id:
        raise LegatoError(Reason.REQUEST_INVALID, "account_id is missing.", param="account_id")
    return account_id


def _to_preview(preview: "PromptPreview", config: pb.GroundingConfig) -> pb.PreviewGroundingResponse:
    response = pb.PreviewGroundingResponse(
        class_id=preview.class_id, context_tokens=preview.context_tokens, config=config
    )
    response.tokens.character, response.tokens.question = preview.character_tokens, preview.question_tokens
    found = preview.grounding
    if found is None:
        return response
    response.notes.extend(_to_note(note, tokens) for note, tokens in found.notes)
    response.passages.extend(
        pb.PreviewedPassage(
            number=source.number,
            attachment_id=passage.attachment_id,
            name=passage.name,
            page=passage.page,
            text=passage.text,
            tokens=tokens,
        )
        for source, passage, tokens in found.passages
    )
    response.added_text = found.text
    response.offers_search = found.offers_search
    response.tokens.notes, response.tokens.passages = found.notes_tokens, found.passages_tokens
    response.tokens.search = found.search_tokens
    return response


def _to_note(note: "Note", tokens: int | None = None) -> pb.Note:
    return pb.Note(
        note_id=note.note_id,
        account_id=note.account_id,
        text=note.text,
        tokens=note.tokens if tokens is None else tokens,
        create_time=_to_timestamp(note.created_at_us),
    )


def _to_attachment(attachment: "Attachment") -> pb.Attachment:
    return pb.Attachment(
        attachment_id=attachment.attachment_id,
        account_id=attachment.account_id,
        name=attachment.name,
        kind=_KINDS[attachment.kind],
        size_bytes=attachment.size_bytes,
        pages=attachment.pages,
        passages=attachment.passages,
        create_time=_to_timestamp(attachment.created_at_us),
    )


def _to_timestamp(micros: int) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp
