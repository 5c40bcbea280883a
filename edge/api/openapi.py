"""GET /openapi.json: the description of this API, as `make openapi` wrote it."""

from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Raw

FILE: Final = Path(__file__).with_name("openapi.json")


@cache
def _document() -> Raw:
    return Raw(FILE.read_bytes())


async def get_openapi() -> Raw:
    return _document()
