"""Reads an uploaded file as it arrives. It is passed on in pieces: never held whole, and never written to a disk."""

import sys
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import ClientDisconnect, Request

from services.chassis.errors import LegatoError, Reason

PIECE_BYTES: Final = 64 * 1024
# A form has few fields before its file.
MOST_BYTES_BEFORE_FILE: Final = 64 * 1024


class Upload:
    """The first file of a multipart form. `open` reads up to its content, `pieces` the rest."""

    def __init__(self, request: Request) -> None:
        self._form = _FileForm(request.headers.get("content-type", ""))
        self._chunks = request.stream()
        self._content_length = int(request.headers.get("content-length", "0"))

    @property
    def name(self) -> str:
        return self._form.name

    @property
    def size_bytes(self) -> int:
        """The size of a file that is the form's last field, by the length of the form: exact, or less where its first
        bytes came in pieces."""
        return max(0, self._content_length - self._form.bytes_around)

    async def open(self) -> None:
        while not self._form.has_begun:
            if self._form.is_over or self._form.bytes_read > MOST_BYTES_BEFORE_FILE:
                raise LegatoError(Reason.REQUEST_INVALID, "The form has no file.", param="document")
            self._form.read(await self._next_chunk())

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the content; raises unless the form is complete."""
        while True:
            while piece := self._form.take(PIECE_BYTES, at_least=1 if self._form.is_file_over else PIECE_BYTES):
                yield piece
            if self._form.is_over:
                return
            self._form.read(await self._next_chunk())

    async def _next_chunk(self) -> bytes:
        try:
            chunk = await anext(self._chunks, b"")
        except ClientDisconnect:
            raise _incomplete() from None
        if not chunk:
            # The body is over, and the form is not.
            raise _incomplete()
        return chunk


class _FileForm:
    """Parses a multipart form up to the end of its first file, and passes over all that is beside it."""

    def __init__(self, content_type: str) -> None:
        # Few visits upload anything.
        from python_multipart.multipart import MultipartParser, parse_options_header

        self._parse_options = parse_options_header
        kind, options = parse_options_header(content_type)
        self._boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not self._boundary:
            raise LegatoError(Reason.REQUEST_INVALID, "The form cannot be read.")
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
        self._field = self._value = b""
        self._options: dict[bytes, bytes] = {}
        self._content = bytearray()
        self._is_in_file = self._has_data = False
        self.name = ""
        self.bytes_read = 0
        # The bytes of the form that are not the file's.
        self.bytes_around = sys.maxsize
        self.has_begun = False
        self.is_file_over = False
        self.is_over = False

    def read(self, chunk: bytes) -> None:
        from python_multipart.exceptions import FormParserError

        try:
            self._parser.write(chunk)
        except FormParserError:
            raise LegatoError(Reason.REQUEST_INVALID, "The form cannot be read.") from None
        self.bytes_read += len(chunk)

    def take(self, most: int, *, at_least: int) -> bytes:
        """Takes a piece of the content; nothing while there is less of it."""
        if len(self._content) < at_least:
            return b""
        piece = bytes(self._content[:most])
        del self._content[:most]
        return piece

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
            self.bytes_around = self.bytes_read + start + len(self._boundary) + 8
        if self._is_in_file:
            self._content += data[start:end]

    def _on_part_end(self) -> None:
        if self._find_file():
            self.is_file_over, self._is_in_file = True, False
        self._options = {}

    def _find_file(self) -> bool:
        """Returns whether this part is the file, which is the first that has a file's name."""
        if not self._is_in_file and not self.is_file_over and b"filename" in self._options:
            self._is_in_file = self.has_begun = True
            self.name = self._options[b"filename"].decode(errors="replace")
        return self._is_in_file

    def _on_end(self) -> None:
        self.is_over = True


def _incomplete() -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, "The file was not sent completely.", param="document")
