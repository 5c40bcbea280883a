"""Reads one document from stdin and writes its text to stdout (`python -m services.router.grounding.files.reading`).

Documents are untrusted, so this runs in its own process: a document that exhausts memory or CPU time affects only this
process, and one that exploits a parser gains nothing (`isolation.py`). The output is lines of JSON: the isolation, the
type and number of pages, then the pages, long ones in several pieces; or why the document was rejected.
"""

import encodings
import pkgutil
import resource
import sys
from typing import Final

import msgspec

from services.router.grounding.files.documents import DocumentRefused, kind_of, pages_of
from services.router.grounding.files.isolation import isolate

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


class ReaderOutput(msgspec.Struct, omit_defaults=True):
    # Names of the active isolation mechanisms.
    holds: list[str] | None = None
    kind: str = ""
    pages: int = 0
    # Page number, from 1, of `text`.
    page: int = 0
    text: str = ""
    refused: str = ""


def main(pages_most: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _write(ReaderOutput(holds=isolate(LIBRARIES)))
    try:
        _read(sys.stdin.buffer.read(), pages_most)
    except DocumentRefused as refusal:
        _write(ReaderOutput(refused=str(refusal)))
    except (MemoryError, RecursionError):
        _write(ReaderOutput(refused="The document takes too much memory to read."))
    except Exception:
        # A library's message may quote the document.
        _write(ReaderOutput(refused="The document is damaged, or too large when decompressed."))


def _read(document: bytes, pages_most: int) -> None:
    kind = kind_of(document)
    count, pages = pages_of(document, kind, pages_most)
    _write(ReaderOutput(kind=kind, pages=count))
    left = CHARACTERS_MOST
    for number, text in enumerate(pages, start=1):
        left -= len(text)
        if left < 0:
            raise DocumentRefused("The document has too much text.")
        for at in range(0, max(1, len(text)), PIECE_CHARACTERS):
            _write(ReaderOutput(page=number, text=text[at : at + PIECE_CHARACTERS]))


def _write(line: ReaderOutput) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
