"""The RPCs of grounding.proto: an owner's notes and documents."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from legato_protos.router.v1 import grounding_pb2 as pb
from legato_protos.router.v1 import grounding_pb2_grpc as pb_grpc
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.router.grounding.assembly import Opened

if TYPE_CHECKING:
    from services.router.grounding.documents.attachments import Attachments
    from services.router.grounding.documents.notes import Notes

# Composes the prompt of a chat that is not sent.
Preview = Callable[[ChatOpen], Awaitable[pb.PreviewGroundingResponse]]

LONGEST_QUESTION = 32_000

_Part = TypeVar("_Part")


class GroundingAdminServicer(pb_grpc.GroundingAdminServiceServicer):
    def __init__(self, opened: Opened, preview: Preview, log: Log) -> None:
        """Calls that need what is not opened fail, and name the missing setting."""
        self._library = opened.library
        self._intake = opened.intake
        self._config = opened.config
        self._preview = preview
        self._log = log

    async def AddNote(self, request: pb.AddNoteRequest, context: Context) -> pb.AddNoteResponse:
        note = await self._notes.add(_account_id(request), request.text)
        self._changed("note.added", note.account_id)
        return pb.AddNoteResponse(note=to_message(pb.Note, note))

    async def ListNotes(self, request: pb.ListNotesRequest, context: Context) -> pb.ListNotesResponse:
        return pb.ListNotesResponse(
            notes=map(partial(to_message, pb.Note), await self._notes.list_of(_account_id(request)))
        )

    async def RemoveNote(self, request: pb.RemoveNoteRequest, context: Context) -> pb.RemoveNoteResponse:
        await self._notes.remove(_account_id(request), request.note_id)
        self._changed("note.removed", request.account_id)
        return pb.RemoveNoteResponse()

    async def UpdateNote(self, request: pb.UpdateNoteRequest, context: Context) -> pb.UpdateNoteResponse:
        note = await self._notes.update(_account_id(request), request.note_id, request.text)
        self._changed("note.updated", note.account_id)
        return pb.UpdateNoteResponse(note=to_message(pb.Note, note))

    async def RemoveAllNotes(self, request: pb.RemoveAllNotesRequest, context: Context) -> pb.RemoveAllNotesResponse:
        removed = await self._notes.remove(_account_id(request))
        self._changed("notes.removed", request.account_id)
        return pb.RemoveAllNotesResponse(removed=removed)

    async def AddAttachment(
        self, request_iterator: AsyncIterator[pb.AddAttachmentRequest], context: Context
    ) -> AsyncIterator[pb.AddAttachmentResponse]:
        intake = _configured(self._intake, "Attachments", "LEGATO_ATTACHMENTS")
        async with aclosing(intake.take(request_iterator)) as responses:
            async for response in responses:
                if response.HasField("attachment"):
                    self._changed("attachment.added", response.attachment.account_id)
                yield response

    async def ListAttachments(self, request: pb.ListAttachmentsRequest, context: Context) -> pb.ListAttachmentsResponse:
        kept = await self._attachments.list_of(_account_id(request))
        return pb.ListAttachmentsResponse(attachments=map(partial(to_message, pb.Attachment), kept))

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
                Reason.REQUEST_INVALID, Sentence("question_length", most=LONGEST_QUESTION), param="question"
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
        response = await self._preview(chat)
        response.config.CopyFrom(self._config)
        return response

    async def GetGroundingConfig(
        self, request: pb.GetGroundingConfigRequest, context: Context
    ) -> pb.GetGroundingConfigResponse:
        return pb.GetGroundingConfigResponse(config=self._config)

    @property
    def _notes(self) -> "Notes":
        notes = None if self._library is None else self._library.notes
        return _configured(notes, "Memory", "LEGATO_MEMORY")

    @property
    def _attachments(self) -> "Attachments":
        attachments = None if self._library is None else self._library.attachments
        return _configured(attachments, "Attachments", "LEGATO_ATTACHMENTS")

    def _changed(self, event: str, account_id: str) -> None:
        if self._library is not None:
            self._library.invalidate(account_id)
        self._log.info(event, account_id=account_id)


def _configured(part: _Part | None, what: str, variable: str) -> _Part:
    if part is None:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("part_not_configured", what=what, setting=variable))
    return part


def _account_id(request: Any) -> str:
    account_id: str = request.account_id
    if not account_id:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("account_id_missing"), param="account_id")
    return account_id
