from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.auth.core import paging
from services.auth.core.paging import Position
from services.auth.core.times import to_micros
from services.chassis.errors import LegatoError

NOW = datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(("asked", "given"), [(0, 100), (1, 1), (1_000, 1_000), (5_000, 1_000)])
def test_page_has_a_hundred_items_and_at_most_a_thousand(asked: int, given: int) -> None:
    assert paging.page_size(asked) == given


def test_negative_page_size_is_refused() -> None:
    with pytest.raises(LegatoError) as caught:
        paging.page_size(-1)
    assert caught.value.param == "page_size"


def test_page_token_is_read_as_it_was_written() -> None:
    position = Position(to_micros(NOW), "acct_abc")
    assert paging.page_token(paging.to_page_token(position)) == position


@given(st.one_of(st.text(min_size=1), st.text("AZaz09_-=", min_size=4, max_size=42)))
def test_page_token_that_we_did_not_write_is_refused(token: str) -> None:
    with pytest.raises(LegatoError) as caught:
        paging.page_token(token)
    assert caught.value.param == "page_token"


@pytest.mark.parametrize(
    "position", [Position(2**63, "acct_a"), Position(-1, "acct_a"), Position(1, "a\0"), Position(1, "")]
)
def test_page_token_that_points_nowhere_is_refused(position: Position) -> None:
    with pytest.raises(LegatoError, match="page token"):
        paging.page_token(paging.to_page_token(position))
