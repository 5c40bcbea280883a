"""Trust in the counts that providers tell, and in the names of their models."""

import json
from typing import Any

import pytest

from services.router.providers.answer import ProviderAnswer, total
from services.router.providers.anthropic.answer import MessageAnswer
from services.router.providers.base import LARGEST_TOKENS, ProviderUsage
from services.router.providers.gemini.answer import ContentAnswer
from services.router.providers.openai.answer import CompletionAnswer


@pytest.mark.parametrize(
    ("counts", "sum_of_them"),
    [((3,), 3), ((3, None, 4), 7), ((None, 4), None), ((LARGEST_TOKENS - 1, 1), LARGEST_TOKENS)],
)
def test_counts_are_added_where_the_first_is_told(counts: tuple[int | None, ...], sum_of_them: int | None) -> None:
    assert total(*counts) == sum_of_them


def test_counts_that_can_be_true_alone_and_not_together_are_not_believed() -> None:
    """Metering would refuse their sum, and the request could never be settled."""
    assert total(LARGEST_TOKENS, 1) is None


ANSWERS: dict[type[ProviderAnswer], dict[str, Any]] = {
    CompletionAnswer: {
        "model": "the-model",
        "choices": [{"message": {"content": "Hello"}}],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 7,
            "completion_tokens_details": {"reasoning_tokens": 3},
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
        },
    },
    MessageAnswer: {
        "type": "message",
        "model": "the-model",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 4,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 2,
            "output_tokens": 7,
            "output_tokens_details": {"thinking_tokens": 3},
        },
    },
    ContentAnswer: {
        "modelVersion": "the-model",
        "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 11,
            "cachedContentTokenCount": 5,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 3,
        },
    },
}


def usage_of(answer_type: type[ProviderAnswer], said: dict[str, Any], *, is_traced: bool) -> ProviderUsage:
    answer = answer_type()
    answer.is_traced = is_traced
    answer.begin_piece()
    answer.read_whole(json.dumps(said).encode())
    answer.close()
    usage = answer.pieces[-1].usage
    assert usage is not None
    return usage


@pytest.mark.parametrize("answer_type", ANSWERS)
def test_answer_tells_its_tokens_and_their_parts_and_a_traced_one_its_model(answer_type: type[ProviderAnswer]) -> None:
    said = ANSWERS[answer_type]
    traced, ordinary = (usage_of(answer_type, said, is_traced=is_traced) for is_traced in (True, False))
    assert (traced.model_name, ordinary.model_name) == ("the-model", "")
    for usage in (traced, ordinary):
        assert (usage.prompt_tokens, usage.completion_tokens) == (11, 7)
        # Gemini's cache is not written to for each request.
        written_tokens = None if answer_type is ContentAnswer else 2
        assert (usage.cached_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (5, written_tokens, 3)


@pytest.mark.parametrize("name", ["what the user has said", "a" * 101, "", None, 7, ["a"], "naïve", "a\nb"])
@pytest.mark.parametrize("answer_type", ANSWERS)
def test_what_is_not_the_name_of_a_model_is_no_part_of_a_trace(answer_type: type[ProviderAnswer], name: Any) -> None:
    said = {**ANSWERS[answer_type], "modelVersion" if answer_type is ContentAnswer else "model": name}
    assert usage_of(answer_type, said, is_traced=True).model_name == ""
