"""Usage that a provider reports, believed or not."""

import pytest
from msgspec.structs import replace

from services.router.answers.usage_check import UsageCheck, Violation, longest_output_tokens
from services.router.providers.base import ProviderUsage

WINDOW, MAX_TOKENS, PROMPT_TOKENS = 200_000, 131_072, 10_000


def judge(told: list[Violation], took_s: float = 1.0, max_tokens: int = MAX_TOKENS) -> UsageCheck:
    return UsageCheck(WINDOW, max_tokens, PROMPT_TOKENS, lambda: took_s, told.append)


@pytest.mark.parametrize(
    ("usage", "output_tokens", "took_s"),
    [
        # As we count, and by vocabularies that are twice as large or half as large.
        ((10_000, 500, 0), 500, 0.1),
        ((20_000, 1_000, 0), 500, 0.1),
        ((5_000, 250, 0), 500, 0.1),
        # Cached, all of it.
        ((10_000, 500, 10_000), 500, 0.1),
        # A provider that puts much around a short prompt, and images and tools that count for more.
        ((26_000, 500, 0), 500, 0.1),
        ((40_000, 500, 0), 500, 0.1),
        # Hidden reasoning: up to the limit that the model was given, at a pace that models have.
        ((10_000, 131_072, 0), 3, 60.0),
        ((10_000, 30_000, 0), 3, 1.0),
        ((10_000, 16_000, 0), 0, 0.01),
        # An answer that came from a cache of the provider's, at once.
        ((10_000, 120_000, 0), 110_000, 0.05),
        ((None, None, None), 500, 0.1),
    ],
)
def test_honest_usage_is_believed(usage: tuple[int, int, int], output_tokens: int, took_s: float) -> None:
    told: list[Violation] = []
    said = ProviderUsage(*usage)
    assert judge(told, took_s).believed(said, output_tokens) == said
    assert told == []


@pytest.mark.parametrize(
    ("usage", "believed", "violations"),
    [
        ((900_000_000, 3, 0), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((200_001, 3, 200_001), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((90_000, 3, 90_000), (None, 3, None), [Violation.PROMPT_TOKENS]),
        ((10_000, 900_000_000, 7), (10_000, None, 7), [Violation.COMPLETION_TOKENS]),
        # Three tokens that were seen, in a second: no model thinks so fast.
        ((10_000, 131_072, 0), (10_000, None, 0), [Violation.COMPLETION_TOKENS]),
        ((10**9, 10**9, 0), (None, None, None), [Violation.PROMPT_TOKENS, Violation.COMPLETION_TOKENS]),
    ],
)
def test_impossible_usage_is_not_believed_and_is_told(
    usage: tuple[int, int, int], believed: tuple[int | None, int | None, int | None], violations: list[Violation]
) -> None:
    told: list[Violation] = []
    assert judge(told).believed(ProviderUsage(*usage), 3) == ProviderUsage(*believed)
    assert told == violations


def test_parts_of_what_is_not_believed_are_not_either() -> None:
    said = ProviderUsage(10_000, 30, 7, 5, 2, 20)
    assert judge([]).believed(replace(said, prompt_tokens=10**9), 3) == ProviderUsage(
        None, 30, None, reasoning_tokens=20
    )
    assert judge([]).believed(replace(said, completion_tokens=10**9), 3) == ProviderUsage(10_000, None, 7, 5, 2)


def test_more_than_the_model_was_allowed_is_not_believed_however_long_it_took() -> None:
    told: list[Violation] = []
    patient = judge(told, took_s=3600, max_tokens=100)
    assert patient.believed(ProviderUsage(10_000, 214, 0), 3).completion_tokens == 214
    assert patient.believed(ProviderUsage(10_000, 215, 0), 3).completion_tokens is None


def test_longest_answer_by_our_count_is_that_of_the_models_own_tokens() -> None:
    assert longest_output_tokens(100, ratio=1.0) == 214
    assert longest_output_tokens(100, ratio=0.5) == longest_output_tokens(100) == 364


def test_model_that_was_sent_no_limit_is_charged_up_to_it_and_does_no_wrong_beyond_it() -> None:
    told: list[Violation] = []
    check = UsageCheck(WINDOW, 1000, PROMPT_TOKENS, lambda: 60.0, told.append, is_limit_told=False)
    assert check.believed(ProviderUsage(10_000, 999, 7), 3) == ProviderUsage(10_000, 999, 7)
    assert check.believed(ProviderUsage(10_000, 50_000, 7), 3) == ProviderUsage(10_000, 1000, 7)
    assert told == []
    assert check.believed(ProviderUsage(10_000, WINDOW + 1, 7), 3).completion_tokens is None
    assert told == [Violation.COMPLETION_TOKENS]
