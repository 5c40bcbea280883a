"""The page of the public API names every field and parameter that there is, and no other."""

import re
from pathlib import Path

import msgspec

from edge.api.usage import UsageQuery
from edge.responses.fields import ResponseBody
from edge.wire.request_fields import Body

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "api.md"
RESPONSES_PAGE = DOCS / "responses.md"

_ROW = re.compile(r"^\| (.*?) \|", re.MULTILINE)


def section(title: str, page: Path = PAGE) -> str:
    """Up to the next one, or to the next part of it."""
    return re.split(r"^#+ ", page.read_text().partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def names_in(title: str, page: Path = PAGE) -> set[str]:
    """Reads its table's first column."""
    return {name for cell in _ROW.findall(section(title, page)) for name in re.findall(r"`(\w+)`", cell)}


def test_page_names_every_field_of_a_chat_and_no_other() -> None:
    assert names_in("A chat") == {field.name for field in msgspec.structs.fields(Body)}


def test_page_names_every_field_of_a_response_and_no_other() -> None:
    assert names_in("A request", RESPONSES_PAGE) == {field.name for field in msgspec.structs.fields(ResponseBody)}


def test_page_names_every_parameter_of_usage_and_no_other() -> None:
    assert names_in("Usage") == UsageQuery.model_fields.keys() - {"bracketed_group_by"}
