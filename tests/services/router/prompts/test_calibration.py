"""Lessons from how a model counts prompts."""

import pytest

from services.router.prompts.calibration import (
    LEAST_ANSWER_TOKENS,
    LEAST_ANSWERS,
    LEAST_CUT_TOKENS,
    LEAST_PROMPT_TOKENS,
    MOST_ACCOUNTS,
    SAMPLES_PER_ACCOUNT,
    UNKNOWN_ANSWER_RATIO,
    Calibration,
    CountedPrompt,
    Ratios,
)


def prompt(tokens: int = 1000, *, has_tools: bool = False, account_id: str = "a") -> CountedPrompt:
    return CountedPrompt(tokens, has_tools, account_id)


def test_nothing_is_known_of_a_model_before_its_first_answer() -> None:
    assert Calibration().ratios(prompt()) is None


def test_one_answer_tells_how_a_model_counts() -> None:
    calibration = Calibration()
    calibration.record(prompt(1000), 1800)
    assert calibration.ratios(prompt(1020)) == Ratios(1.8, 1.8)


def test_upper_ratio_is_that_of_nearly_all_prompts() -> None:
    calibration = Calibration()
    for account in range(12):
        for number in range(SAMPLES_PER_ACCOUNT):
            calibration.record(prompt(account_id=str(account)), 3000 if number == account == 0 else 1000 + account)
    assert calibration.ratios(prompt()) == Ratios(1.006, 1.011)


def test_busy_account_with_unusual_texts_does_not_speak_for_all() -> None:
    calibration = Calibration()
    for account in "abc":
        for _ in range(SAMPLES_PER_ACCOUNT):
            calibration.record(prompt(account_id=account), 1000)
    for _ in range(1000):
        calibration.record(prompt(account_id="unusual"), 4000)
    ratios = calibration.ratios(prompt())
    assert ratios is not None
    assert ratios.middle == 1.0


def test_what_a_model_did_long_ago_is_forgotten() -> None:
    calibration = Calibration()
    for _ in range(SAMPLES_PER_ACCOUNT):
        calibration.record(prompt(), 4000)
    for account in range(MOST_ACCOUNTS):
        calibration.record(prompt(account_id=str(account)), 1000)
    assert calibration.ratios(prompt()) == Ratios(1.0, 1.0)


def test_prompts_with_tools_are_counted_by_themselves() -> None:
    calibration = Calibration()
    calibration.record(prompt(has_tools=True), 1800)
    assert calibration.ratios(prompt()) is None


def test_nearest_size_stands_for_one_that_is_not_known_and_says_so() -> None:
    calibration = Calibration()
    calibration.record(prompt(300), 600)
    calibration.record(prompt(10_000), 12_000)
    assert calibration.ratios(prompt(100_000)) == Ratios(1.2, 1.2, is_same_size=False)
    assert calibration.ratios(prompt(20)) == Ratios(2.0, 2.0, is_same_size=False)


@pytest.mark.parametrize(
    ("tokens", "model_tokens"), [(LEAST_PROMPT_TOKENS - 1, 300), (1000, 0), (1000, 11), (1000, 900_000_000)]
)
def test_what_says_nothing_about_the_vocabulary_is_not_believed(tokens: int, model_tokens: int) -> None:
    calibration = Calibration()
    calibration.record(prompt(tokens), model_tokens)
    assert calibration.ratios(prompt()) is None


@pytest.mark.parametrize(("model_tokens", "ratio"), [(400, 0.4), (1000, 1.0), (1900, 1.0)])
def test_answers_tell_how_long_the_tokens_of_a_model_are(model_tokens: int, ratio: float) -> None:
    """Shorter tokens than ours in some texts do not mean that there are no longer ones in others."""
    calibration = Calibration()
    for number in range(LEAST_ANSWERS):
        assert calibration.answer_ratio == UNKNOWN_ANSWER_RATIO
        calibration.record_answer(str(number % 2), 1000, model_tokens)
    assert calibration.answer_ratio == ratio


def test_limit_of_answers_follows_the_longest_tokens_that_are_usual() -> None:
    calibration = Calibration()
    for account in range(12):
        for number in range(SAMPLES_PER_ACCOUNT):
            calibration.record_answer(str(account), 1000, 300 if number == account == 0 else 700 + account)
    assert calibration.answer_ratio == 0.7


@pytest.mark.parametrize(("tokens", "model_tokens"), [(LEAST_ANSWER_TOKENS - 1, 60), (1000, 6000), (1000, 1), (0, 9)])
def test_answers_that_say_nothing_about_the_vocabulary_are_not_believed(tokens: int, model_tokens: int) -> None:
    """Short ones, those with reasoning that is not shown, and mistakes."""
    calibration = Calibration()
    for _ in range(LEAST_ANSWERS):
        calibration.record_answer("a", tokens, model_tokens)
    assert calibration.answer_ratio == UNKNOWN_ANSWER_RATIO


def test_least_count_of_a_prompt_that_was_read_follows_the_usual_ratio() -> None:
    calibration = Calibration()
    assert calibration.least_tokens(prompt(LEAST_CUT_TOKENS - 1)) == 0
    assert calibration.least_tokens(prompt(10_000)) == 4_000
    calibration.record(prompt(10_000), 18_000)
    assert calibration.least_tokens(prompt(10_000)) == 12_600
    # What a server adds is a smaller part of a larger prompt.
    assert calibration.least_tokens(prompt(40_000)) == 28_000
    assert calibration.least_tokens(prompt(10_000, has_tools=True)) == 4_000


def test_prompts_that_were_all_cut_do_not_hide_it_once_smaller_ones_are_known() -> None:
    calibration = Calibration()
    calibration.record(prompt(8_000), 4_096)
    assert calibration.least_tokens(prompt(8_000)) < 4_096
    # Too small to tell: a template may be most of it.
    calibration.record(prompt(300), 900)
    assert calibration.least_tokens(prompt(8_000)) < 4_096
    calibration.record(prompt(3_000), 3_000)
    assert calibration.least_tokens(prompt(8_000)) == 5_600
