"""Checks whether the token counts that a provider reports for one call are plausible.

Reported counts are what is charged, so an implausible one, by mistake or by greed, is rejected. Honest counts
differ from ours by the provider's tokenizer, by its prompt template, and by hidden reasoning, which may take as
many tokens as the model was allowed.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from services.router.prompts.calibration import UNKNOWN_ANSWER_RATIO
from services.router.providers.base import ProviderUsage

# A provider's tokens per token of ours, at most, and a fixed allowance on top for templates, the provider's own
# instructions and a short reasoning.
MOST_TIMES_OURS: Final = 4
FREE_TOKENS: Final = 16_384
# Faster than any model generates, hidden reasoning included.
MOST_TOKENS_A_SECOND: Final = 20_000
# A model may go on a little beyond its limit, and its tokens may be longer than usual.
LIMIT_MARGIN_PARTS: Final = 2
LIMIT_MARGIN_TOKENS: Final = 64


class Violation(Enum):
    """A way in which a provider's answer is invalid."""

    PROMPT_TOKENS = "prompt_tokens"
    # The model has not read all of the prompt.
    PROMPT_CUT = "prompt_cut"
    COMPLETION_TOKENS = "completion_tokens"
    # The model exceeded its output limit.
    MAX_TOKENS = "max_tokens"


def longest_output_tokens(max_tokens: int, ratio: float = UNKNOWN_ANSWER_RATIO) -> int:
    """Returns the most tokens, by our count, of an answer whose model respects this limit. `ratio` is the model's count
    divided by ours."""
    return _with_margin(math.ceil(max_tokens / ratio))


def _with_margin(tokens: int) -> int:
    return tokens + tokens // LIMIT_MARGIN_PARTS + LIMIT_MARGIN_TOKENS


class UsageCheck(Struct):
    """Checks the usage that a provider reports for one call."""

    context_tokens: int
    max_tokens: int
    # Our own count.
    prompt_tokens: int
    # Time since the model was called.
    age_s: Callable[[], float]
    on_violation: Callable[[Violation], None]
    # Whether the model was sent the limit. One that was not does no wrong beyond it, and is charged up to it.
    is_limit_told: bool = True

    def believed(self, usage: ProviderUsage, output_tokens: int) -> ProviderUsage:
        """Returns the usage with implausible counts replaced by None; `output_tokens` is our own count."""
        most_prompt_tokens = min(self.context_tokens, MOST_TIMES_OURS * self.prompt_tokens + FREE_TOKENS)
        if (usage.prompt_tokens or 0) > most_prompt_tokens:
            self.on_violation(Violation.PROMPT_TOKENS)
            usage = replace(
                usage, prompt_tokens=None, cached_tokens=None, cache_write_tokens=None, cache_write_1h_tokens=None
            )
        if not self.believes_output(usage.completion_tokens or 0, output_tokens):
            self.on_violation(Violation.COMPLETION_TOKENS)
            usage = replace(usage, completion_tokens=None, reasoning_tokens=None)
        if not self.is_limit_told and (usage.completion_tokens or 0) > self.max_tokens:
            usage = replace(usage, completion_tokens=self.max_tokens)
        return usage

    def believes_output(self, reported_tokens: int, output_tokens: int) -> bool:
        most_tokens = _with_margin(self.max_tokens) if self.is_limit_told else self.context_tokens
        if reported_tokens > min(self.context_tokens, most_tokens):
            return False
        # The elapsed time is read last, since hardly any answer needs it.
        free_tokens = MOST_TIMES_OURS * output_tokens + FREE_TOKENS
        return reported_tokens <= free_tokens or reported_tokens <= free_tokens + MOST_TOKENS_A_SECOND * self.age_s()
