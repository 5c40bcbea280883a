"""Trust in the counts that providers tell."""

import pytest

from services.router.providers.answer import total
from services.router.providers.base import LARGEST_TOKENS


@pytest.mark.parametrize(
    ("counts", "sum_of_them"),
    [((3,), 3), ((3, None, 4), 7), ((None, 4), None), ((LARGEST_TOKENS - 1, 1), LARGEST_TOKENS)],
)
def test_counts_are_added_where_the_first_is_told(counts: tuple[int | None, ...], sum_of_them: int | None) -> None:
    assert total(*counts) == sum_of_them


def test_counts_that_can_be_true_alone_and_not_together_are_not_believed() -> None:
    """Metering would refuse their sum, and the request could never be settled."""
    assert total(LARGEST_TOKENS, 1) is None
