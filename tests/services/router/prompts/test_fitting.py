"""max_tokens, fitted to the window of a model."""

import asyncio
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.prompts.calibration import (
    Calibration,
    CountedPrompt,
    Ratios,
)
from services.router.prompts.fitting import LEAST_RATIO, Figures, fit_max_tokens, refit_max_tokens
from services.router.prompts.prompt import load_character
from services.router.prompts.tokens import count
from tests.services.router.harness import as_json, running_router, target
from tests.support.upstreams.openai import Upstream

TOKENS = st.integers(1, 2_000_000)
CHARACTER_TOKENS = count(load_character().text)


def test_prompt_that_leaves_no_room_is_told_in_the_words_by_which_frameworks_know_it() -> None:
    """Some go by the code, and shorten the conversation by themselves; others have no more than the message."""
    with pytest.raises(LegatoError) as refusal:
        fit_max_tokens(None, prompt_tokens=19_000, context_tokens=8_192, max_output_tokens=4_096)
    assert "this model's maximum context length is 8192" in refusal.value.message


@given(asked=st.none() | TOKENS, prompt_tokens=TOKENS, context_tokens=TOKENS, max_output_tokens=TOKENS)
def test_prompt_and_answer_fit_the_window_and_the_answer_is_never_empty(
    asked: int | None, prompt_tokens: int, context_tokens: int, max_output_tokens: int
) -> None:
    if LEAST_RATIO * prompt_tokens >= context_tokens:
        with pytest.raises(LegatoError) as refusal:
            fit_max_tokens(asked, prompt_tokens, context_tokens, max_output_tokens)
        assert refusal.value.reason is Reason.CONTEXT_EXCEEDED
        assert str(prompt_tokens) in refusal.value.message
        assert str(context_tokens) in refusal.value.message
    else:
        fitted, is_doubtful = fit_max_tokens(asked, prompt_tokens, context_tokens, max_output_tokens)
        assert 1 <= fitted <= max_output_tokens
        assert asked is None or fitted <= asked
        assert is_doubtful == (prompt_tokens >= context_tokens)
        if not is_doubtful:
            assert prompt_tokens + fitted <= context_tokens


def test_what_the_client_asks_for_is_kept_where_it_fits() -> None:
    assert fit_max_tokens(50, 100, 1000, 500).max_tokens == 50


def test_without_a_wish_the_answer_may_be_as_long_as_the_model_can() -> None:
    assert fit_max_tokens(None, 100, 1000, 500).max_tokens == 500


def test_some_room_is_left_for_a_model_that_counts_otherwise() -> None:
    assert fit_max_tokens(None, 800, 1000, 500).max_tokens == 150


def test_margin_leaves_at_least_half_of_the_room_to_the_answer() -> None:
    assert fit_max_tokens(None, 950, 1000, 500).max_tokens == 25


@pytest.mark.parametrize(
    ("ratios", "prompt_tokens", "max_tokens"),
    [
        (Ratios(1.8, 1.8), 500, 100 - 900 // 64),
        (Ratios(1.8, 1.8, is_same_size=False), 500, 100 // 2),
        (Ratios(0.7, 0.7), 1000, 300 - 700 // 64),
        (Ratios(1.0, 1.2), 500, 400 - 600 // 64),
        # Some who are counted much higher do not shorten everybody's answers.
        (Ratios(1.0, 4.0), 500, 500 // 2),
    ],
)
def test_answer_has_the_room_that_the_models_own_count_leaves(
    ratios: Ratios, prompt_tokens: int, max_tokens: int
) -> None:
    assert fit_max_tokens(None, prompt_tokens, 1000, 500, ratios) == (max_tokens, False)


def test_prompt_that_seems_to_fill_the_window_is_left_to_the_model_to_judge() -> None:
    assert fit_max_tokens(None, 1000, 1000, 500) == (1000 // 16, True)
    assert fit_max_tokens(7, 1600, 1000, 500) == (7, True)
    assert fit_max_tokens(None, 600, 1000, 500, Ratios(1.8, 1.8)) == (1000 // 16, True)


@pytest.mark.parametrize(
    ("figures", "max_tokens"),
    [
        (Figures(context_tokens=1000, prompt_tokens=900), 99),
        (Figures(prompt_tokens=900), 99),
        (Figures(context_tokens=1000, total_tokens=1300), 99),
        (Figures(context_tokens=1000, prompt_tokens=999), 1),
        (Figures(context_tokens=1000, prompt_tokens=1000), None),
        (Figures(context_tokens=1000, prompt_tokens=2000), None),
        (Figures(), 400 // 64),
        (Figures(context_tokens=1000), 400 // 64),
        # What cannot be, since it was refused.
        (Figures(context_tokens=1000, prompt_tokens=100), 400 // 64),
        (Figures(context_tokens=1000, total_tokens=399), 400 // 64),
        (Figures(context_tokens=10**9, prompt_tokens=1), 400 // 64),
    ],
)
def test_refused_limit_becomes_the_room_that_the_models_figures_leave(figures: Figures, max_tokens: int | None) -> None:
    assert refit_max_tokens(400, 1000, figures) == max_tokens


def test_tools_that_a_model_counts_nearly_twice_leave_room_for_a_long_answer() -> None:
    ours, theirs, window_tokens, max_output_tokens = 525_000, 900_000, 1_000_000, 131_072
    refused_tokens = fit_max_tokens(None, ours, window_tokens, max_output_tokens).max_tokens
    assert refused_tokens == max_output_tokens
    figures = Figures(context_tokens=window_tokens, total_tokens=theirs + refused_tokens)
    assert refit_max_tokens(refused_tokens, window_tokens, figures) == window_tokens - theirs - 1
    calibration = Calibration()
    calibration.record(CountedPrompt(ours, has_tools=True, account_id=""), theirs)
    ratios = calibration.ratios(CountedPrompt(ours, has_tools=True, account_id=""))
    assert 80_000 < fit_max_tokens(None, ours, window_tokens, max_output_tokens, ratios).max_tokens < 100_000


@given(
    refused_tokens=TOKENS,
    context_tokens=TOKENS,
    figures=st.builds(Figures, st.none() | TOKENS, st.none() | TOKENS, st.none() | TOKENS),
)
def test_limit_that_was_refused_becomes_smaller_whatever_the_figures(
    refused_tokens: int, context_tokens: int, figures: Figures
) -> None:
    refit_tokens = refit_max_tokens(refused_tokens, context_tokens, figures)
    assert refit_tokens is None or 1 <= refit_tokens < refused_tokens


@pytest.mark.parametrize("asked", [None, 1, 50])
def test_prompt_that_leaves_room_for_one_token_gets_that_one(asked: int | None) -> None:
    assert fit_max_tokens(asked, 999, 1000, 500) == (1, False)


@pytest.mark.parametrize("asked", [0, -1])
def test_limit_below_one_is_refused(asked: int) -> None:
    with pytest.raises(LegatoError) as refusal:
        fit_max_tokens(asked, 1, 100, 100)
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "max_tokens")


@dataclass(frozen=True)
class Asked:
    text: str
    tools: list[dict[str, Any]]
    stream: bool
    max_tokens: int | None

    @property
    def tools_json(self) -> bytes:
        return as_json(self.tools) if self.tools else b""

    @property
    def least_tokens(self) -> int:
        """Counts what the model reads, without the template."""
        return CHARACTER_TOKENS + count(self.text) + count(self.tools_json.decode())


@dataclass(frozen=True)
class Fitted:
    prompt_tokens: int
    max_tokens: int


async def fitted_upstream(asked: Asked, context_tokens: int, max_output_tokens: int) -> Fitted | LegatoError:
    """Returns what a server sees, or why it sees nothing."""
    fields: dict[str, Any] = {} if asked.max_tokens is None else {"max_tokens": asked.max_tokens}
    with tempfile.TemporaryDirectory(prefix="lg-", dir="/tmp") as folder:
        async with Upstream() as upstream:
            only = target("main", context_tokens, max_output_tokens)
            async with running_router(Path(folder), Log("test", io.StringIO()), {only: upstream}) as router:
                messages = as_json([{"role": "user", "content": asked.text}])
                try:
                    answer = await router.ask(messages, tools_json=asked.tools_json, stream=asked.stream, **fields)
                except LegatoError as refusal:
                    return refusal
                sent = upstream.requests[0].json.get("max_tokens")
                max_tokens = answer.responses[0].started.max_tokens
                # Nothing is sent where neither the client nor the window sets a limit.
                needs_none = asked.max_tokens is None and max_tokens == max_output_tokens
                assert sent == (None if needs_none else max_tokens)
                return Fitted(answer.responses[0].prompt_tokens, max_tokens)


_tools = st.dictionaries(st.text("abc_", min_size=1, max_size=8), st.text(max_size=200), max_size=4).map(
    lambda described: [
        {"type": "function", "function": {"name": name, "description": text, "parameters": {"type": "object"}}}
        for name, text in described.items()
    ]
)
_asked = st.builds(
    Asked,
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20).flatmap(
        lambda words: st.integers(1, 60).map(lambda times: words * times)
    ),
    tools=_tools,
    stream=st.booleans(),
    max_tokens=st.none() | st.integers(1, 4000),
)


@given(
    asked=_asked,
    window_beyond_character=st.integers(-CHARACTER_TOKENS + 1, 2000),
    max_output_tokens=st.integers(1, 4000),
)
def test_whatever_is_asked_with_tools_or_without_a_model_server_gets_what_its_window_holds(
    asked: Asked, window_beyond_character: int, max_output_tokens: int
) -> None:
    context_tokens = CHARACTER_TOKENS + window_beyond_character
    fitted = asyncio.run(fitted_upstream(asked, context_tokens, max_output_tokens))
    if isinstance(fitted, LegatoError):
        assert (fitted.reason, fitted.param) == (Reason.CONTEXT_EXCEEDED, "messages")
        prompt_tokens, window_tokens = map(int, re.findall(r"\d+", fitted.message))
        assert window_tokens == context_tokens <= LEAST_RATIO * prompt_tokens
        assert prompt_tokens >= asked.least_tokens
    else:
        assert fitted.prompt_tokens >= asked.least_tokens
        if fitted.prompt_tokens < context_tokens:
            assert fitted.prompt_tokens + fitted.max_tokens <= context_tokens
        else:
            assert fitted.max_tokens <= max(1, context_tokens // 16)
        assert 1 <= fitted.max_tokens <= max_output_tokens
        assert asked.max_tokens is None or fitted.max_tokens <= asked.max_tokens
