"""The limit on output that goes upstream."""

import asyncio
import io
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.chassis.errors import LegatoError, Reason
from services.chassis.log import Log
from services.router.character import load_character
from services.router.fit import fit_max_tokens
from services.router.tokens import count
from tests.services.router.harness import as_json, running_router, target
from tests.upstream import Upstream

TOKENS = st.integers(1, 2_000_000)
CHARACTER_TOKENS = count(load_character().text)


def test_prompt_that_leaves_no_room_is_told_in_the_words_by_which_frameworks_know_it() -> None:
    """Some go by the code, and shorten the conversation by themselves; others have no more than the message."""
    with pytest.raises(LegatoError) as refusal:
        fit_max_tokens(None, prompt_tokens=9_000, context_tokens=8_192, max_output_tokens=4_096)
    assert "this model's maximum context length is 8192" in refusal.value.message


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


@pytest.mark.parametrize("asked", [None, 1, 50])
def test_prompt_that_leaves_room_for_one_token_gets_that_one(asked: int | None) -> None:
    assert fit_max_tokens(asked, 999, 1000, 500) == 1


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
        """What the model reads, but for the template around it."""
        return CHARACTER_TOKENS + count(self.text) + count(self.tools_json.decode())


@dataclass(frozen=True)
class Fitted:
    prompt_tokens: int
    max_tokens: int


async def fitted_upstream(asked: Asked, context_tokens: int, max_output_tokens: int) -> Fitted | LegatoError:
    """What a model server gets to see, or why it sees nothing."""
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
                sent: int = upstream.requests[0].json["max_tokens"]
                assert answer.responses[0].started.max_tokens == sent
                return Fitted(answer.responses[0].prompt_tokens, sent)


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


@settings(max_examples=40, deadline=None)
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
        assert window_tokens == context_tokens <= prompt_tokens
        assert prompt_tokens >= asked.least_tokens
    else:
        assert fitted.prompt_tokens >= asked.least_tokens
        assert fitted.prompt_tokens + fitted.max_tokens <= context_tokens
        assert 1 <= fitted.max_tokens <= max_output_tokens
        assert asked.max_tokens is None or fitted.max_tokens <= asked.max_tokens
