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
        },
    },
    MessageAnswer: {
        "type": "message",
        "model": "the-model",
        "content": [{"type": "text", "text": "Hello"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 11, "output_tokens": 7},
    },
    ContentAnswer: {
        "modelVersion": "the-model",
        "candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 4, "thoughtsTokenCount": 3},
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
def test_traced_answer_tells_its_model_and_its_tokens_of_reasoning(answer_type: type[ProviderAnswer]) -> None:
    """An ordinary one is not asked. Anthropic does not count reasoning apart."""
    said, reasoning_tokens = ANSWERS[answer_type], None if answer_type is MessageAnswer else 3
    traced = usage_of(answer_type, said, is_traced=True)
    assert (traced.model_name, traced.reasoning_tokens) == ("the-model", reasoning_tokens)
    ordinary = usage_of(answer_type, said, is_traced=False)
    assert (ordinary.model_name, ordinary.reasoning_tokens) == ("", None)
    assert (ordinary.prompt_tokens, ordinary.completion_tokens) == (11, 7)


@pytest.mark.parametrize("name", ["what the user has said", "a" * 101, "", None, 7, ["a"], "naïve", "a\nb"])
@pytest.mark.parametrize("answer_type", ANSWERS)
def test_what_is_not_the_name_of_a_model_is_no_part_of_a_trace(answer_type: type[ProviderAnswer], name: Any) -> None:
    said = {**ANSWERS[answer_type], "modelVersion" if answer_type is ContentAnswer else "model": name}
    assert usage_of(answer_type, said, is_traced=True).model_name == ""
