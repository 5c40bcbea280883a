"""What owners keep for their chats to be grounded in. None of it prints what it says."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


class DocumentKind(StrEnum):
    # Markdown among it, which is read as it is.
    TEXT = "text"
    HTML = "html"
    PDF = "pdf"


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    note_id: str
    account_id: str
    created_at_us: int
    # About: what is sent of it has tags, and its brackets are replaced.
    tokens: int
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class Document:
    """A document as it was read: its text by pages, of which only a PDF may have several."""

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
    # How many.
    passages: int


@dataclass(frozen=True, slots=True, repr=False)
class Passage:
    """A part of an attachment that matches a question."""

    attachment_id: str
    name: str
    # From 1; 0 where the document has no pages.
    page: int
    # About: what is sent of it has tags, and its brackets are replaced.
    tokens: int
    text: str

    @property
    def title(self) -> str:
        return f"{self.name}, page {self.page}" if self.page else self.name


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A page that a search found, as the search describes it."""

    title: str
    url: str
    snippet: str
