import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.wire.value_limit import check_values
from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.yielder import Yielder

SLICE_BYTES = 64 * 1024

NUMBERS = st.integers(0, 9)
# Of what can be mistaken for the end of a string, or for a value.
TEXTS = st.text(alphabet='\\",[]{}:a\n', max_size=12)
VALUES = st.recursive(NUMBERS | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=30)


def yielder() -> Yielder:
    return Yielder(SLICE_BYTES)


def commas_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inner) - 1) + sum(map(commas_of, inner))


async def is_refused(text_json: bytes, most: int) -> bool:
    try:
        await check_values(text_json, yielder(), most)
    except LegatoError as error:
        return error.reason is Reason.REQUEST_INVALID
    return False


def openings_of(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + sum(map(openings_of, inner))


@given(VALUES)
async def test_values_are_counted_and_what_stands_in_strings_is_not(value: object) -> None:
    text_json, most = json.dumps(value).encode(), max(commas_of(value), openings_of(value))
    assert not await is_refused(text_json, most)
    if most:
        assert await is_refused(text_json, most - 1)


@pytest.mark.parametrize("backslashes", range(5))
@pytest.mark.parametrize("before", range(-6, 3))
async def test_strings_are_told_from_values_wherever_the_text_is_cut(before: int, backslashes: int) -> None:
    """The quote behind the backslashes stands just before the end of a slice, or just after it."""
    string = json.dumps("\\" * backslashes + '",')
    text_json = b" " * (SLICE_BYTES + before - 1) + f'[{string},"{"," * 100}",1]'.encode()
    assert not await is_refused(text_json, 2)
    assert await is_refused(text_json, 1)


async def test_text_full_of_commas_is_no_value() -> None:
    await check_values(b'["' + b"," * 1_000_000 + b'"]', yielder())


@pytest.mark.parametrize("value", [b"[]", b'""', b"1", b'{"a":1}'])
async def test_more_values_than_any_chat_has_are_refused(value: bytes) -> None:
    with pytest.raises(LegatoError) as refused:
        await check_values(b"[" + b",".join([value] * 600_000) + b"]", yielder())
    assert refused.value.message == "The body has more than 500,000 values."


async def test_more_lists_than_any_chat_has_are_refused_however_they_are_nested() -> None:
    nested = b"[" * 500 + b"]" * 500
    with pytest.raises(LegatoError) as refused:
        await check_values(b"[" + b",".join([nested] * 1_100) + b"]", yielder())
    assert refused.value.message == "The body has more than 500,000 lists and objects."
