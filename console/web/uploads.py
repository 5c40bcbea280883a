"""Reads an uploaded file as it arrives. It is passed on in pieces: never held whole, and never written to a disk."""

import sys
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect, Request

from console.web.forms import unreadable_form
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

PIECE_BYTES: Final = 64 * 1024
# A form has few fields before its file.
MOST_BYTES_BEFORE_FILE: Final = 64 * 1024


class Upload:
    """The first file of a multipart form, whose other fields are passed over. `open` reads up to its content, `pieces`
    the rest."""

    def __init__(self, request: Request) -> None:
        # Few visits upload anything.
        from python_multipart.multipart import MultipartParser, parse_options_header

        self._parse_options = parse_options_header
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        self._boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not self._boundary:
            raise unreadable_form()
        self._parser: MultipartParser = MultipartParser(
            self._boundary,
            {
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )
        self._chunks = request.stream()
        self._content_length = int(request.headers.get("content-length", "0"))
        self._bytes_read = 0
        # The bytes of the form that are not the file's.
        self._bytes_around = sys.maxsize
        self._field = self._value = b""
        self._options: dict[bytes, bytes] = {}
        self._content = bytearray()
        self._has_begun = self._has_data = self._is_in_file = self._is_file_over = self._is_over = False
        self.name = ""

    @property
    def size_bytes(self) -> int:
        """The size of a file that is the form's last field, by the length of the form: exact, or less where its first
        bytes came in pieces."""
        return max(0, self._content_length - self._bytes_around)

    async def open(self) -> None:
        while not self._has_begun:
            if self._is_over or self._bytes_read > MOST_BYTES_BEFORE_FILE:
                raise LegatoError(Reason.REQUEST_INVALID, Sentence("form_without_file"), param="document")
            await self._read()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the content; raises unless the form is complete."""
        while True:
            while len(self._content) >= (1 if self._is_file_over else PIECE_BYTES):
                piece = bytes(self._content[:PIECE_BYTES])
                del self._content[:PIECE_BYTES]
                yield piece
            if self._is_over:
                return
            await self._read()

    async def _read(self) -> None:
        from python_multipart.exceptions import FormParserError

        try:
            chunk = await anext(self._chunks, b"")
            if not chunk:
                # The body is over, and the form is not.
                raise ClientDisconnect
            self._parser.write(chunk)
        except ClientDisconnect:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("file_cut"), param="document") from None
        except FormParserError:
            raise unreadable_form() from None
        self._bytes_read += len(chunk)

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._options = self._parse_options(self._value)[1]
        self._field = self._value = b""

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._find_file() and not self._has_data:
            self._has_data = True
            # Behind it are a line break, the boundary between dashes, and another line break.
            self._bytes_around = self._bytes_read + start + len(self._boundary) + 8
        if self._is_in_file:
            self._content += data[start:end]

    def _on_part_end(self) -> None:
        if self._find_file():
            self._is_file_over, self._is_in_file = True, False
        self._options = {}

    def _find_file(self) -> bool:
        """Returns whether this part is the file, which is the first that has a file's name."""
        if not self._is_in_file and not self._is_file_over and b"filename" in self._options:
            self._is_in_file = self._has_begun = True
            self.name = self._options[b"filename"].decode(errors="replace")
        return self._is_in_file

    def _on_end(self) -> None:
        self._is_over = True
