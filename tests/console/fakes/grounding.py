"""Notes and documents of one account, and a router that takes them as the real one does."""

from typing import Any

from protos.router.v1 import grounding_pb2
from services.chassis.errors import LegatoError, Reason
from tests.console.clock import ago


class GroundingFakes:
    """The part of the fakes that is GroundingAdminService. Notes and documents are listed oldest first."""

    # The RPCs that arrived.
    requests: list[Any]

    def reset_grounding(self) -> None:
        self.grounding = grounding_pb2.GroundingConfig(
            memory=grounding_pb2.MemoryConfig(notes_most=200, note_characters_most=2000, prompt_tokens_most=512),
            attachments=grounding_pb2.AttachmentsConfig(
                attachments_most=200, bytes_most=64 * 1024, pages_most=1000, passages_most=5000, prompt_tokens_most=2048
            ),
        )
        self.switches = {"search": True, "memory": True, "attachments": True}
        self.notes: list[grounding_pb2.Note] = []
        self.documents: list[grounding_pb2.Attachment] = []
        # The pieces of each document that arrived, in bytes.
        self.received: list[list[int]] = []
        self.upload_refusals: dict[str, LegatoError] = {}
        # Uploads whose sender left.
        self.cancelled = 0

    def add_note(self, text: str, **values: Any) -> None:
        note_id = f"note_{len(self.notes) + 1:016d}"
        made = {"note_id": note_id, "text": text, "create_time": ago(days=9 - len(self.notes)), **values}
        self.notes.append(grounding_pb2.Note(tokens=4 + len(text) // 4, **made))

    def add_document(self, name: str, **values: Any) -> grounding_pb2.Attachment:
        made = {"kind": grounding_pb2.DOCUMENT_KIND_TEXT, "size_bytes": 900, "pages": 1, "passages": 1, **values}
        attachment_id = f"att_{len(self.documents) + 1:016d}"
        made["create_time"] = ago(days=9 - len(self.documents))
        self.documents.append(grounding_pb2.Attachment(attachment_id=attachment_id, name=name, **made))
        return self.documents[-1]

    def fill_grounding(self) -> None:
        """Gives the account notes and documents, one of each in an unwanted state."""
        for text in (
            "I live in Ottawa, and I write in British English.",
            "My company is Analytical Engines. We repair and sell mechanical calculators.",
            "I am allergic to nuts.\nDo not suggest recipes with them.",
            "Invoices are due within 30 days.",
        ):
            self.add_note(text)
        self.add_note("", note_id="note_00000000000000ff")
        pdf = grounding_pb2.DOCUMENT_KIND_PDF
        self.add_document("Zephyr manual.pdf", kind=pdf, size_bytes=2_412_330, pages=84, passages=211)
        self.add_document("prices-2026.md", size_bytes=14_220, passages=17)
        self.add_document("", size_bytes=300)

    def GetGroundingConfig(self, request: Any) -> Any:
        return grounding_pb2.GetGroundingConfigResponse(config=self.grounding)

    def _configured(self, name: str) -> None:
        if not self.grounding.HasField(name):  # type: ignore[arg-type]
            raise LegatoError(Reason.REQUEST_INVALID, f"{name} is not configured.")

    def ListNotes(self, request: Any) -> Any:
        self._configured("memory")
        return grounding_pb2.ListNotesResponse(notes=self.notes)

    def AddNote(self, request: Any) -> Any:
        if not request.text:
            raise LegatoError(Reason.REQUEST_INVALID, "A note must have 1 to 2,000 characters.", param="text")
        self.add_note(request.text, account_id=request.account_id)
        return grounding_pb2.AddNoteResponse(note=self.notes[-1])

    def _note(self, note_id: str) -> grounding_pb2.Note:
        for note in self.notes:
            if note.note_id == note_id:
                return note
        raise LegatoError(Reason.NOT_FOUND, "There is no such note.")

    def UpdateNote(self, request: Any) -> Any:
        if not request.text:
            raise LegatoError(Reason.REQUEST_INVALID, "A note must have 1 to 2,000 characters.", param="text")
        self._note(request.note_id).text = request.text
        return grounding_pb2.UpdateNoteResponse()

    def RemoveNote(self, request: Any) -> Any:
        self.notes.remove(self._note(request.note_id))
        return grounding_pb2.RemoveNoteResponse()

    def RemoveAllNotes(self, request: Any) -> Any:
        removed, self.notes = len(self.notes), []
        return grounding_pb2.RemoveAllNotesResponse(removed=removed)

    def ListAttachments(self, request: Any) -> Any:
        self._configured("attachments")
        return grounding_pb2.ListAttachmentsResponse(attachments=self.documents)

    def RemoveAttachment(self, request: Any) -> Any:
        self.documents = [each for each in self.documents if each.attachment_id != request.attachment_id]
        return grounding_pb2.RemoveAttachmentResponse()

    async def AddAttachment(self, requests: Any) -> Any:
        """Takes a document as the router does: limits its size, and tells of three stages."""
        first = await anext(requests)
        self.requests.append(first)
        self.received.append([])
        size = len(first.piece)
        if first.size_bytes > self.grounding.attachments.bytes_most:
            raise LegatoError(Reason.BODY_TOO_LARGE, "A document may have at most 64 KB.", param="document")
        yield progress(grounding_pb2.ATTACHMENT_STAGE_RECEIVING, size, first.size_bytes)
        if f"early {first.name}" in self.upload_refusals:
            raise self.upload_refusals[f"early {first.name}"]
        async for request in requests:
            self.received[-1].append(len(request.piece))
            size += len(request.piece)
            yield progress(grounding_pb2.ATTACHMENT_STAGE_RECEIVING, size, first.size_bytes)
        if first.name in self.upload_refusals:
            raise self.upload_refusals[first.name]
        for page in (1, 2):
            yield progress(grounding_pb2.ATTACHMENT_STAGE_READING, page, 2)
        if f"late {first.name}" in self.upload_refusals:
            raise self.upload_refusals[f"late {first.name}"]
        yield progress(grounding_pb2.ATTACHMENT_STAGE_INDEXING, 3, 3)
        made = self.add_document(first.name, size_bytes=size, passages=3)
        yield grounding_pb2.AddAttachmentResponse(attachment=made)

    def PreviewGrounding(self, request: Any) -> Any:
        if not request.question:
            raise LegatoError(Reason.REQUEST_INVALID, "A question must have 1 to 32,000 characters.", param="question")
        notes = [note for note in self.notes if note.text] if request.memory else []
        passages = [
            grounding_pb2.PreviewedPassage(
                number=number,
                attachment_id=each.attachment_id,
                name=each.name,
                page=number + 1,
                text="The warranty of the Zephyr lasts for five years from the day of delivery. " * 4,
                tokens=71,
            )
            for number, each in enumerate(self.documents[:2], start=1)
        ]
        tokens = grounding_pb2.PromptTokens(character=212, question=11)
        tokens.notes, tokens.passages = sum(note.tokens for note in notes), 71 * len(passages)
        return grounding_pb2.PreviewGroundingResponse(
            class_id="forte" if request.model == "auto" else request.model,
            context_tokens=131_072,
            notes=notes,
            passages=passages,
            added_text="<notes>...</notes>" if notes else "",
            tokens=tokens,
            config=self.grounding,
        )


def progress(stage: Any, done: int, total: int) -> grounding_pb2.AddAttachmentResponse:
    return grounding_pb2.AddAttachmentResponse(
        progress=grounding_pb2.AttachmentProgress(stage=stage, done=done, total=total)
    )
