"""How a model counts prompts, compared with our own count of them.

Our count is that of one vocabulary; a model has another, and templates and tool definitions come on top. Every answer
tells the model's own count of its prompt, so the ratio of the two is known after a few.
"""

import math
from collections import OrderedDict, deque
from typing import Final, NamedTuple

# Of a shorter prompt the count says more about the template around it than about the vocabulary.
LEAST_PROMPT_TOKENS: Final = 256
# No vocabulary differs from ours by more: what does is a mistake, or a prompt that was cut.
SMALLEST_RATIO: Final = 0.2
LARGEST_RATIO: Final = 5.0
# Of each size of prompt. An account has a few samples, so that a busy one with unusual texts does not speak for all.
SAMPLES_PER_ACCOUNT: Final = 8
MOST_ACCOUNTS: Final = 16
UPPER_QUANTILE: Final = 0.95


class CountedPrompt(NamedTuple):
    """A prompt by our own count."""

    tokens: int
    has_tools: bool
    account_id: str


class Ratios(NamedTuple):
    """The model's count of a prompt divided by ours."""

    middle: float
    upper: float
    # Whether they were measured with prompts of about the same size.
    is_same_size: bool = True


class Calibration:
    """That of one model. Prompts with tools are kept apart, and so are sizes that differ by more than a factor of two:
    what a server adds to every prompt matters less in a long one."""

    def __init__(self) -> None:
        self._by_size: dict[tuple[bool, int], _Samples] = {}

    def note(self, prompt: CountedPrompt, model_tokens: int) -> None:
        """The model counts the prompt as so many tokens."""
        if prompt.tokens < LEAST_PROMPT_TOKENS:
            return
        ratio = model_tokens / prompt.tokens
        if SMALLEST_RATIO <= ratio <= LARGEST_RATIO:
            self._by_size.setdefault(_size(prompt), _Samples()).add(prompt.account_id, ratio)

    def ratios(self, prompt: CountedPrompt) -> Ratios | None:
        """Those of prompts like this one, or of the nearest size there is; None where nothing is known."""
        has_tools, bits = _size(prompt)
        known = [size for size in self._by_size if size[0] == has_tools]
        if not known:
            return None
        nearest = min(known, key=lambda size: (abs(size[1] - bits), -size[1]))
        ratios = self._by_size[nearest].ratios()
        return ratios if nearest[1] == bits else ratios._replace(is_same_size=False)


class _Samples:
    def __init__(self) -> None:
        # The account that was heard of last is the last.
        self._by_account: OrderedDict[str, deque[float]] = OrderedDict()
        self._ratios: Ratios | None = None

    def add(self, account_id: str, ratio: float) -> None:
        self._by_account.setdefault(account_id, deque(maxlen=SAMPLES_PER_ACCOUNT)).append(ratio)
        self._by_account.move_to_end(account_id)
        if len(self._by_account) > MOST_ACCOUNTS:
            self._by_account.popitem(last=False)
        self._ratios = None

    def ratios(self) -> Ratios:
        if self._ratios is None:
            samples = sorted(ratio for ratios in self._by_account.values() for ratio in ratios)
            upper = samples[math.ceil(UPPER_QUANTILE * len(samples)) - 1]
            self._ratios = Ratios(samples[len(samples) // 2], max(samples[len(samples) // 2], upper))
        return self._ratios


def _size(prompt: CountedPrompt) -> tuple[bool, int]:
    return prompt.has_tools, prompt.tokens.bit_length()
