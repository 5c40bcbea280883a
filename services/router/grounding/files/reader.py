"""Reads one document from stdin and writes its text to stdout, in a process of its own.

Documents are untrusted: one that exhausts memory or CPU time affects only this process, and one that exploits a parser
gains nothing, since the process has no keys and, where the kernel allows it, no access to files or the network
(`isolation.py`). A document's type is detected by content, never by name. The output is lines of JSON: the isolation,
the type and number of pages, then the pages, long ones in several pieces; or why the document was rejected.
"""

import encodings
import pkgutil
import re
import resource
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from io import BytesIO
from typing import Final

import msgspec

from services.chassis.sentence import Figure, Sentence
from services.router.grounding.files.isolation import isolate
from services.router.grounding.records import DocumentKind

# The largest documents take half of it. The container's limit has room for all readers beside the router.
MEMORY_BYTES: Final = 256 * 1024**2
PROCESSOR_S: Final = 60
PIECE_CHARACTERS: Final = 32 * 1024
# Far more than the index takes: a document that expands to more is malicious (decompression bomb).
CHARACTERS_MOST: Final = 8_000_000


# Modules that parsing may import late: encodings, and parts of pypdf.
LIBRARIES: Final = (
    *(f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)),
    *("html.parser", "pypdf", "pypdf._codecs._codecs", "pypdf.filters", "pypdf.generic"),
)

# Each leading comment ends at its first possible end: backtracking over many of them would take forever.
_HTML: Final = re.compile(
    rb"\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE
)
# Text formats meant for machines.
_PROGRAMS: Final = (b"{\\rtf", b"%!PS", b"<?xml")
_CONTROLS: Final = re.compile("[\x00-\x08\x0e-\x1f\x7f]")

_UNSEEN_TAGS: Final = frozenset({"iframe", "math", "noscript", "object", "script", "style", "svg", "template"})
_BREAKING_TAGS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "body", "br", "dd", "div", "dl", "dt", "figcaption", "footer", "form"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section", "table"}
    | {"td", "th", "title", "tr", "ul"}
)


class DocumentRefused(Exception):
    """A document was rejected. The sentence is for the owner and quotes nothing of the document."""

    def __init__(self, sentence: Sentence) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class ReaderOutput(msgspec.Struct, omit_defaults=True):
    # Names of the active isolation mechanisms.
    holds: list[str] | None = None
    kind: str = ""
    pages: int = 0
    # Page number, from 1, of `text`.
    page: int = 0
    text: str = ""
    # The id of a sentence.
    refused: str = ""
    figures: dict[str, Figure] = {}


def main(pages_most: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _write(ReaderOutput(holds=isolate(LIBRARIES)))
    try:
        _read(sys.stdin.buffer.read(), pages_most)
    except DocumentRefused as refusal:
        _refuse(refusal.sentence)
    except (MemoryError, RecursionError):
        _refuse(Sentence("document_memory"))
    except Exception:
        # A library's message may quote the document.
        _refuse(Sentence("document_damaged"))


def _read(document: bytes, pages_most: int) -> None:
    kind = kind_of(document)
    count, pages = pages_of(document, kind, pages_most)
    _write(ReaderOutput(kind=kind, pages=count))
    left = CHARACTERS_MOST
    for number, text in enumerate(pages, start=1):
        left -= len(text)
        if left < 0:
            raise DocumentRefused(Sentence("document_text_too_long"))
        for at in range(0, max(1, len(text)), PIECE_CHARACTERS):
            _write(ReaderOutput(page=number, text=text[at : at + PIECE_CHARACTERS]))


def _refuse(sentence: Sentence) -> None:
    _write(ReaderOutput(refused=sentence.id, figures=dict(sentence.figures)))


def _write(line: ReaderOutput) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def kind_of(document: bytes) -> DocumentKind:
    begin = document[:4096].removeprefix(b"\xef\xbb\xbf")
    # Some writers put a few bytes before it.
    if b"%PDF-" in document[:1024]:
        return DocumentKind.PDF
    if _HTML.match(begin):
        return DocumentKind.HTML
    if begin.startswith(_PROGRAMS):
        raise DocumentRefused(Sentence("document_kind_unknown"))
    return DocumentKind.TEXT


def pages_of(document: bytes, kind: DocumentKind, pages_most: int) -> tuple[int, Iterator[str]]:
    """Returns the number of pages, and an iterator over their texts."""
    if kind is DocumentKind.PDF:
        return _pdf_pages(document, pages_most)
    text = _decode(document)
    return 1, iter([_html_text(text) if kind is DocumentKind.HTML else text])


def _decode(document: bytes) -> str:
    try:
        text = document.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentRefused(Sentence("document_encoding")) from None
    if _CONTROLS.search(text):
        raise DocumentRefused(Sentence("document_kind_unknown"))
    return text


def _pdf_pages(document: bytes, pages_most: int) -> tuple[int, Iterator[str]]:
    from pypdf import PdfReader
    from pypdf.errors import PdfReadError, PyPdfError

    try:
        reader = PdfReader(BytesIO(document))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DocumentRefused(Sentence("pdf_password"))
        count = len(reader.pages)
    except (PyPdfError, PdfReadError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DocumentRefused(Sentence("pdf_damaged")) from None
    if count > pages_most:
        raise DocumentRefused(Sentence("pdf_pages_most", count=count, most=pages_most))
    return count, (_whole_characters(page.extract_text()) for page in reader.pages)


def _whole_characters(text: str) -> str:
    """Joins surrogate pairs that a PDF encodes separately, and replaces unpaired ones."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        # The stack of open tags whose content is invisible.
        self._unseen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN_TAGS:
            self._unseen.append(tag)
        elif tag in _BREAKING_TAGS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            while self._unseen.pop() != tag:
                pass
        elif tag in _BREAKING_TAGS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.pieces.append(re.sub(r"\s+", " ", data))


def _html_text(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    parser.close()
    return re.sub(r"\s*\n\s*", "\n", "".join(parser.pieces)).strip()
