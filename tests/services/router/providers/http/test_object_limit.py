"""Answers of too many objects, which are told from texts full of braces."""

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.providers.base import ProviderError
from services.router.providers.http.object_limit import MOST_OBJECTS, check_objects, count_objects

TEXTS = st.text(alphabet='{}"\\ab[]', max_size=8)
VALUES = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def objects_in(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(objects_in(inner) for inner in value.values())
    return sum(objects_in(inner) for inner in value) if isinstance(value, list) else 0


@given(VALUES)
def test_objects_are_counted_exactly_whatever_the_texts_hold(value: Any) -> None:
    assert count_objects(json.dumps(value).encode()) == objects_in(value)


@pytest.mark.parametrize(
    ("value", "is_too_much"),
    [
        ([{}] * MOST_OBJECTS, False),
        ([{}] * (MOST_OBJECTS + 1), True),
        ([{"a": "{"}] * (MOST_OBJECTS + 1), True),
        ("{" * 4 * MOST_OBJECTS, False),
        ('{"a": 1}, ' * 2 * MOST_OBJECTS, False),
        (["{", "}"] * 2 * MOST_OBJECTS, False),
        ([[]] * 4 * MOST_OBJECTS, False),
    ],
    ids=["as many as may be", "one more", "with braces in texts", "braces", "JSON in a text", "in texts", "lists"],
)
def test_only_objects_outside_of_texts_can_be_too_many(value: Any, is_too_much: bool) -> None:
    with pytest.raises(ProviderError) if is_too_much else nullcontext():
        check_objects(json.dumps(value).encode())
