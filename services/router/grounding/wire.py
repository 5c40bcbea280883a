"""Converts records to messages. Apart from the records, which the reader of documents loads, too."""

from dataclasses import asdict
from typing import Any, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from protos.router.v1 import grounding_pb2 as pb
from services.router.grounding.records import Attachment, Note

_Message = TypeVar("_Message", pb.Note, pb.Attachment)


def to_note(note: Note, tokens: int | None = None) -> pb.Note:
    """Returns the note, with these tokens if they are known exactly."""
    return _fill(pb.Note, note, tokens=note.tokens if tokens is None else tokens)


def to_attachment(attachment: Attachment) -> pb.Attachment:
    return _fill(pb.Attachment, attachment, kind=pb.DocumentKind.Value(f"DOCUMENT_KIND_{attachment.kind.name}"))


def _fill(message_type: type[_Message], record: Note | Attachment, **others: Any) -> _Message:
    """Returns a message with the fields of the record, except for `others`."""
    fields = asdict(record) | others
    create_time = Timestamp()
    create_time.FromMicroseconds(fields.pop("created_at_us"))
    return message_type(**fields, create_time=create_time)
