"""ZIP files, sent while they are written: neither the memory nor a disk of the console has one as a whole."""

import io
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from starlette.responses import Response, StreamingResponse

from console.web.csv_files import CHUNK_BYTES, FileCutOff
from console.web.visit import Visit
from services.chassis.errors import LegatoError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# The name and the content of each file in it.
Files = AsyncIterator[tuple[str, AsyncIterator[bytes]]]
_READABLE_BY_ITS_USER: Final = 0o600 << 16


class _Outbox(io.RawIOBase):
    """Keeps what was written until it is taken. It cannot seek, so sizes are written behind each file."""

    def __init__(self) -> None:
        self._written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, piece: "ReadableBuffer") -> int:
        before = len(self._written)
        self._written += memoryview(piece)
        return len(self._written) - before

    @property
    def size(self) -> int:
        return len(self._written)

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def as_fields(message: Message) -> dict[str, object]:
    """Returns a message as JSON has it; a large number is a text there."""
    return MessageToDict(message, preserving_proto_field_name=True)


async def json_file(content: object) -> AsyncIterator[bytes]:
    yield json.dumps(content, ensure_ascii=False, indent=2).encode()


def zip_response(visit: Visit, name: str, files: Files) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_parts(visit, files), 200, headers, "application/zip")


async def _parts(visit: Visit, files: Files) -> AsyncIterator[bytes]:
    outbox = _Outbox()
    try:
        with ZipFile(outbox, "w") as archive:
            async for name, pieces in files:
                entry = ZipInfo(name, visit.now.timetuple()[:6])
                entry.compress_type, entry.external_attr = ZIP_DEFLATED, _READABLE_BY_ITS_USER
                with archive.open(entry, "w", force_zip64=True) as file:
                    async for piece in pieces:
                        file.write(piece)
                        if outbox.size >= CHUNK_BYTES:
                            yield outbox.take()
    except LegatoError as error:
        visit.console.log.warning("page.file_cut_off", reason=error.reason)
        raise FileCutOff from None
    yield outbox.take()
