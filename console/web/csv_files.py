"""CSV files, sent while they are read. Amounts are exact."""

import csv
import io
from collections.abc import AsyncIterator, Iterable
from typing import Final

from starlette.responses import Response, StreamingResponse

from console.web.visit import Visit
from services.chassis.errors import LegatoError

# Lines are gathered up to about this size.
CHUNK_BYTES: Final = 32 * 1024
# Programs for tables take a text that begins so for a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")

# By column.
Row = dict[str, object]


class FileCutOff(Exception):
    """Ends a download: a browser then shows that it failed, and a part is not taken for the whole."""


def text_cell(text: str) -> str:
    """Returns a text as no program for tables executes it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


async def csv_response(visit: Visit, name: str, columns: Iterable[str], rows: AsyncIterator[Row]) -> Response:
    """Sends a file whose first row is known: what is refused by then, or not answered, is a page with a status."""
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    lines = csv_lines(visit, columns, await _begun(rows))
    return StreamingResponse(lines, 200, headers, "text/csv; charset=utf-8")


async def csv_lines(visit: Visit, columns: Iterable[str], rows: AsyncIterator[Row]) -> AsyncIterator[bytes]:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns))
    writer.writeheader()
    try:
        async for row in rows:
            writer.writerow(row)
            if buffer.tell() >= CHUNK_BYTES:
                yield _taken(buffer)
    except LegatoError as error:
        visit.console.log.warning("page.file_cut_off", reason=error.reason)
        raise FileCutOff from None
    yield _taken(buffer)


async def _begun(rows: AsyncIterator[Row]) -> AsyncIterator[Row]:
    """Reads the first row, and returns all of them."""
    first = await anext(rows, None)

    async def every() -> AsyncIterator[Row]:
        if first is not None:
            yield first
        async for row in rows:
            yield row

    return every()


def _taken(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue().encode()
    buffer.seek(0)
    buffer.truncate()
    return text
