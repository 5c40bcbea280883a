"""Learns the ratio of a model's token counts to ours: of prompts, and of answers.

We count with one tokenizer; a model has its own, and adds templates and tool definitions. Every answer reports the
model's count of its prompt and of itself, so the ratios are known after a few answers.
"""

import math
from collections import OrderedDict, deque
from typing import Final, NamedTuple

# In a shorter prompt the template outweighs the tokenizer.
LEAST_PROMPT_TOKENS: Final = 256
# No tokenizer differs from ours by more: such a count is an error, or the prompt was cut.
SMALLEST_RATIO: Final = 0.4
LARGEST_RATIO: Final = 5.0
# Limits per size bucket. Few samples per account keep a busy one with unusual texts from dominating.
SAMPLES_PER_ACCOUNT: Final = 8
MOST_ACCOUNTS: Final = 16
UPPER_QUANTILE: Final = 0.95
# The model's count of an answer divided by ours, as far as it can be that of one text: a larger one includes reasoning
# that is not shown, and a smaller one is an error.
SMALLEST_ANSWER_RATIO: Final = 0.25
LARGEST_ANSWER_RATIO: Final = 2.0
LEAST_ANSWER_TOKENS: Final = 128
# Until then, tokens are believed to be up to twice as long as ours.
LEAST_ANSWERS: Final = 8
UNKNOWN_ANSWER_RATIO: Final = 0.5


# A model that reports a smaller part of its usual count has not read all of a prompt. No server cuts a smaller prompt.
CUT_SHARE: Final = 0.7
LEAST_CUT_TOKENS: Final = 1024
# The ratios of smaller prompts say nothing about those of larger ones: a server's fixed additions raise them.
LEAST_STEADY_TOKENS: Final = 2048


class CountedPrompt(NamedTuple):
    """A prompt with our own token count."""

    tokens: int
    has_tools: bool
    account_id: str


class Ratios(NamedTuple):
    """Quantiles of the model's count of a prompt divided by ours."""

    middle: float
    upper: float
    # Whether they were measured with prompts of about the same size.
    is_same_size: bool = True


class Calibration:
    """The calibration of one model. Prompts are grouped by whether they have tools, and by size within a factor of two:
    a server's fixed additions matter less in a long prompt."""

    def __init__(self) -> None:
        self._by_size: dict[tuple[bool, int], _Samples] = {}
        self._answers = _Samples()

    @property
    def answer_ratio(self) -> float:
        """Returns the least ratio that the model's count of an answer usually has to ours, at most 1: the texts that
        were seen say nothing about those with longer tokens."""
        if len(self._answers) < LEAST_ANSWERS:
            return UNKNOWN_ANSWER_RATIO
        return min(1.0, self._answers.lower_ratio())

    def record_answer(self, account_id: str, tokens: int, model_tokens: int) -> None:
        """Records the model's own count of an answer that has no reasoning; `tokens` is our count."""
        ratio = model_tokens / max(1, tokens)
        if tokens >= LEAST_ANSWER_TOKENS and SMALLEST_ANSWER_RATIO <= ratio <= LARGEST_ANSWER_RATIO:
            self._answers.add(account_id, ratio)

    def record(self, prompt: CountedPrompt, model_tokens: int) -> None:
        """Records the model's own count of a prompt."""
        if prompt.tokens < LEAST_PROMPT_TOKENS:
            return
        ratio = model_tokens / prompt.tokens
        if SMALLEST_RATIO <= ratio <= LARGEST_RATIO:
            self._by_size.setdefault(_size(prompt), _Samples()).add(prompt.account_id, ratio)

    def least_tokens(self, prompt: CountedPrompt) -> int:
        """Returns the least count that a model may report which has read all of a prompt; 0 for a small prompt.

        Samples of other sizes count, too: those of the same size may all be of prompts that were cut."""
        if prompt.tokens < LEAST_CUT_TOKENS:
            return 0
        size = _size(prompt)
        steady_bits = LEAST_STEADY_TOKENS.bit_length()
        usual_ratios = [
            samples.lower_ratio() if each == size else min(1.0, samples.lower_ratio())
            for each, samples in self._by_size.items()
            if each == size or (each[0] == size[0] and each[1] >= steady_bits)
        ]
        return int(max([SMALLEST_RATIO, *(CUT_SHARE * ratio for ratio in usual_ratios)]) * prompt.tokens)

    def ratios(self, prompt: CountedPrompt) -> Ratios | None:
        """Returns the ratios for similar prompts, or for the nearest known size; None if there are none."""
        has_tools, bits = _size(prompt)
        known = [size for size in self._by_size if size[0] == has_tools]
        if not known:
            return None
        nearest = min(known, key=lambda size: (abs(size[1] - bits), -size[1]))
        ratios = self._by_size[nearest].ratios()
        return ratios if nearest[1] == bits else ratios._replace(is_same_size=False)


class _Samples:
    def __init__(self) -> None:
        # Ordered by last use, most recent last.
        self._by_account: OrderedDict[str, deque[float]] = OrderedDict()
        self._sorted: list[float] | None = None

    def __len__(self) -> int:
        return len(self._in_order())

    def add(self, account_id: str, ratio: float) -> None:
        self._by_account.setdefault(account_id, deque(maxlen=SAMPLES_PER_ACCOUNT)).append(ratio)
        self._by_account.move_to_end(account_id)
        if len(self._by_account) > MOST_ACCOUNTS:
            self._by_account.popitem(last=False)
        self._sorted = None

    def ratios(self) -> Ratios:
        samples = self._in_order()
        middle, upper = samples[len(samples) // 2], samples[self._within_upper() - 1]
        return Ratios(middle, max(middle, upper))

    def lower_ratio(self) -> float:
        return self._in_order()[-self._within_upper()]

    def _within_upper(self) -> int:
        return math.ceil(UPPER_QUANTILE * len(self._in_order()))

    def _in_order(self) -> list[float]:
        if self._sorted is None:
            self._sorted = sorted(ratio for ratios in self._by_account.values() for ratio in ratios)
        return self._sorted


def _size(prompt: CountedPrompt) -> tuple[bool, int]:
    return prompt.has_tools, prompt.tokens.bit_length()
