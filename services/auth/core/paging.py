"""Pages of lists, and the tokens that lead from one to the next."""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from services.auth.core.checks import is_id, refusal
from services.chassis.errors import LegatoError
from services.chassis.sentence import Sentence

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MOST: Final = 1_000

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a list, in order of creation, then of id; the next page begins after it."""

    created_at_us: int
    id: str


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    items: list[ItemT]
    # Empty on the last page.
    next_token: str


def page_size(given: int) -> int:
    if given < 0:
        raise refusal("page_size", Sentence("page_size_negative"))
    return min(given, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT


def page_token(given: str) -> Position | None:
    if not given:
        return None
    try:
        created_at_us, _, last_id = base64.b64decode(given, altchars=b"-_", validate=True).decode().partition(" ")
        position = Position(int(created_at_us), last_id)
    except (binascii.Error, ValueError):
        raise _bad_page_token() from None
    # Only the exact encoding that we produce is accepted.
    if to_page_token(position) != given or not is_id(last_id) or not 0 <= position.created_at_us < 2**63:
        raise _bad_page_token()
    return position


def to_page_token(position: Position) -> str:
    return base64.urlsafe_b64encode(f"{position.created_at_us} {position.id}".encode()).decode()


def to_page(found: list[ItemT], size: int, position_of: Callable[[ItemT], Position]) -> Page[ItemT]:
    """Builds a page; `found` has one item more if there is another page."""
    items = found[:size]
    return Page(items, to_page_token(position_of(items[-1])) if len(found) > size else "")


def _bad_page_token() -> LegatoError:
    return refusal("page_token", Sentence("page_token_invalid"))
