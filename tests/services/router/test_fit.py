"""The limit on output that goes upstream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import LegatoError, Reason
from services.router.fit import fit_max_tokens

TOKENS = st.integers(1, 2_000_000)


@given(asked=st.none() | TOKENS, prompt_tokens=TOKENS, context_tokens=TOKENS, max_output_tokens=TOKENS)
def test_prompt_and_answer_fit_the_window_and_the_answer_is_never_empty(
    asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int
) -> None:
    if prompt_tokens >= context_tokens:
        with pytest.raises(LegatoError) as refusal:
            fit_max_tokens(asked, prompt_tokens, context_tokens, max_output_tokens)
        assert refusal.value.reason is Reason.CONTEXT_EXCEEDED
        assert str(prompt_tokens) in refusal.value.message
        assert str(context_tokens) in refusal.value.message
    else:
        fitted = fit_max_tokens(asked, prompt_tokens, context_tokens, max_output_tokens)
        assert 1 <= fitted <= max_output_tokens
        assert prompt_tokens + fitted <= context_tokens
        assert asked is None or fitted <= asked


def test_what_the_client_asks_for_is_kept_where_it_fits() -> None:
    assert fit_max_tokens(50, 100, 1000, 500) == 50


def test_without_a_wish_the_answer_may_be_as_long_as_the_model_can() -> None:
    assert fit_max_tokens(None, 100, 1000, 500) == 500


def test_some_room_is_left_for_a_model_that_counts_otherwise() -> None:
    assert fit_max_tokens(None, 800, 1000, 500) == 150


@pytest.mark.parametrize("asked", [0, -1])
def test_limit_below_one_is_refused(asked: int) -> None:
    with pytest.raises(LegatoError) as refusal:
        fit_max_tokens(asked, 1, 100, 100)
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "max_tokens")
