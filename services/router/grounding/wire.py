"""Converts records to messages. Apart from the records, which the reader of documents loads, too."""

from google.protobuf.timestamp_pb2 import Timestamp

from protos.router.v1 import grounding_pb2 as pb
from services.router.grounding.records import Attachment, Note


def to_note(note: Note, tokens: int | None = None) -> pb.Note:
    """Returns the note, with these tokens if they are known exactly."""
    return pb.Note(
        note_id=note.note_id,
        account_id=note.account_id,
        text=note.text,
        tokens=note.tokens if tokens is None else tokens,
        create_time=_to_timestamp(note.created_at_us),
    )


def to_attachment(attachment: Attachment) -> pb.Attachment:
    return pb.Attachment(
        attachment_id=attachment.attachment_id,
        account_id=attachment.account_id,
        name=attachment.name,
        kind=pb.DocumentKind.Value(f"DOCUMENT_KIND_{attachment.kind.name}"),
        size_bytes=attachment.size_bytes,
        pages=attachment.pages,
        passages=attachment.passages,
        create_time=_to_timestamp(attachment.created_at_us),
    )


def _to_timestamp(micros: int) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromMicroseconds(micros)
    return timestamp
