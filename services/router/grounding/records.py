"""Records of grounding. None of them includes its content in its repr."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


class DocumentKind(StrEnum):
    # Includes Markdown, which is not rendered.
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"


class Holding(NamedTuple):
    """Tells which kinds of texts an account has stored."""

    notes: bool
    attachments: bool


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    note_id: str
    account_id: str
    created_at_us: int
    # As it is rendered, with its tags; about, of notes from before that was counted.
    tokens: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A document's text by page; only a PDF may have several pages."""

    kind: DocumentKind
    size_bytes: int
    pages: list[str]


@dataclass(frozen=True, slots=True, repr=False)
class Attachment:
    attachment_id: str
    account_id: str
    created_at_us: int
    name: str
    kind: DocumentKind
    size_bytes: int
    pages: int
    # Number of passages.
    passages: int


@dataclass(frozen=True, slots=True, repr=False)
class Passage:
    """A part of an attachment that matches a question."""

    attachment_id: str
    name: str
    # From 1; 0 if the document has no pages.
    page: int
    text: str

    @property
    def title(self) -> str:
        return f"{self.name}, page {self.page}" if self.page else self.name


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A page that a search found, as described by the search engine."""

    title: str
    url: str
    snippet: str
