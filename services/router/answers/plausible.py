"""Which counts of tokens can be true that a provider tells of one call.

A count that cannot be true must not be believed, since it is what is charged: whether it comes from a mistake or from
greed. Honest ones differ from ours: by their vocabulary, by what they put around a prompt, and by thoughts that nobody
sees, of which there may be as many as the model was allowed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from services.router.providers.base import ProviderUsage

# How many of a provider's tokens one of ours may be, and what may come on top of that whatever is asked: templates,
# guidance of the provider's own, a short thought.
MOST_TIMES_OURS: Final = 4
FREE_TOKENS: Final = 16_384
# Faster than any model writes, seen or unseen.
MOST_TOKENS_A_SECOND: Final = 20_000
# A model keeps to its limit by a vocabulary of its own, by which an answer may be fewer tokens than by ours.
LIMIT_MARGIN_PARTS: Final = 2
LIMIT_MARGIN_TOKENS: Final = 64


class Violation(Enum):
    """What a provider did that no provider should."""

    PROMPT_TOKENS = "prompt_tokens"
    COMPLETION_TOKENS = "completion_tokens"
    # It went on beyond the limit that it was given.
    MAX_TOKENS = "max_tokens"


def longest_output_tokens(max_tokens: int) -> int:
    """By our count, of an answer whose model keeps to this limit."""
    return max_tokens + max_tokens // LIMIT_MARGIN_PARTS + LIMIT_MARGIN_TOKENS


@dataclass(frozen=True, slots=True)
class UsageCheck:
    """Judges what a provider says that one call has used."""

    context_tokens: int
    # As the model was told.
    max_tokens: int
    # By our count.
    prompt_tokens: int
    # How long ago the model was asked.
    age_s: Callable[[], float]
    on_violation: Callable[[Violation], None]

    def believed(self, usage: ProviderUsage, output_tokens: int) -> ProviderUsage:
        """None in place of what cannot be true; `output_tokens` is our own count."""
        prompt_tokens, completion_tokens, cached_tokens = (
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.cached_tokens,
        )
        if prompt_tokens is not None and prompt_tokens > self._most_prompt_tokens():
            self.on_violation(Violation.PROMPT_TOKENS)
            prompt_tokens = cached_tokens = None
        if not self.believes_output(completion_tokens or 0, output_tokens):
            self.on_violation(Violation.COMPLETION_TOKENS)
            completion_tokens = None
        return ProviderUsage(prompt_tokens, completion_tokens, cached_tokens)

    def believes_output(self, told_tokens: int, output_tokens: int) -> bool:
        if told_tokens > min(self.context_tokens, longest_output_tokens(self.max_tokens)):
            return False
        # Looked at last, and so for hardly any answer: how long it took.
        free_tokens = MOST_TIMES_OURS * output_tokens + FREE_TOKENS
        return told_tokens <= free_tokens or told_tokens <= free_tokens + MOST_TOKENS_A_SECOND * self.age_s()

    def _most_prompt_tokens(self) -> int:
        return min(self.context_tokens, MOST_TIMES_OURS * self.prompt_tokens + FREE_TOKENS)
