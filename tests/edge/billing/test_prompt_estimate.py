"""Prompts are estimated by their bytes."""

import json

import pytest

from edge.billing.prompt_estimate import SAMPLE_BYTES, UNSEEN_PROMPT_TOKENS, guess_prompt_tokens

RUSSIAN, CHINESE, FRENCH = "Дождь идёт. ", "下雨了。", "Il pleut à côté de la forêt. "


def spelled(text: str, *, escaped: bool) -> bytes:
    return json.dumps([{"role": "user", "content": text}], ensure_ascii=escaped).encode()


def test_prompt_has_a_token_for_every_four_bytes_and_what_the_router_adds() -> None:
    assert guess_prompt_tokens(b"x" * 400, b"y" * 200) == 150 + UNSEEN_PROMPT_TOKENS
    assert guess_prompt_tokens(b"x" * 400, b"y" * 200, b"z" * 40, b"w" * 80) == 180 + UNSEEN_PROMPT_TOKENS
    assert guess_prompt_tokens(b"", b"") == UNSEEN_PROMPT_TOKENS


@pytest.mark.parametrize("times", [1, 100, SAMPLE_BYTES])
@pytest.mark.parametrize("text", [RUSSIAN, FRENCH])
def test_prompt_is_as_long_in_escapes_as_without(text: str, times: int) -> None:
    without = guess_prompt_tokens(spelled(text * times, escaped=False), b"")
    assert guess_prompt_tokens(spelled(text * times, escaped=True), b"") == pytest.approx(without, rel=0.01)


def test_escapes_cost_no_chat() -> None:
    text = CHINESE * 100
    assert guess_prompt_tokens(spelled(text, escaped=True), b"") <= guess_prompt_tokens(
        spelled(text, escaped=False), b""
    )


def test_tools_may_be_spelled_in_escapes_too() -> None:
    assert guess_prompt_tokens(b"", b"\\u0434" * 100) == 50 + UNSEEN_PROMPT_TOKENS


@pytest.mark.parametrize("text", [b"\\\\u" * 1000, b"\\u" * 1000])
def test_what_only_looks_like_an_escape_is_not_taken_for_less_than_nothing(text: bytes) -> None:
    assert guess_prompt_tokens(text, b"") >= len(text) // 12 + UNSEEN_PROMPT_TOKENS
