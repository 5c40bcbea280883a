"""Finds prompts that a model's server cut without reporting it, by the server's own count of tokens.

A server that cuts a prompt answers it as if nothing had happened; only its count is far below what the model usually
counts (`services/router/prompts/calibration.py`).
"""

import math
from collections.abc import Callable
from typing import Final

from services.chassis.timing.deadlines import Clock, SystemClock
from services.router.prompts.calibration import Calibration, CountedPrompt
from services.router.providers.base import ProviderUsage

REPORTED_EVERY_S: Final = 60.0


class CutPrompts:
    """The cut prompts of one model."""

    def __init__(
        self, clock: Clock | None = None, report: Callable[[int, int], None] = lambda tokens, model_tokens: None
    ) -> None:
        """`report` is called with our count and the model's, at most once a minute."""
        self._clock = clock or SystemClock()
        self._report = report
        self._reported_at_s = -math.inf
        # The smallest cut prompt, by our count; None: there was none since the model last read one as large.
        self.cuts_prompts_from_tokens: int | None = None
        # The most that the model read of any, by its own count.
        self.read_tokens = 0

    def record(self, prompt: CountedPrompt, usage: ProviderUsage, calibration: Calibration) -> bool:
        """Records what the model reports of a prompt, and calibrates by it if it is all of the prompt. Returns whether
        the prompt was cut."""
        model_tokens = usage.prompt_tokens or 0
        least_tokens = calibration.least_tokens(prompt)
        if model_tokens >= least_tokens:
            calibration.record(prompt, model_tokens)
            if self.cuts(prompt.tokens):
                self.forget()
            return False
        if model_tokens + (usage.cached_tokens or 0) >= least_tokens:
            # Some providers count only what was not cached.
            return False
        self.cuts_prompts_from_tokens = min(prompt.tokens, self.cuts_prompts_from_tokens or prompt.tokens)
        self.read_tokens = max(self.read_tokens, model_tokens)
        if self._clock.elapsed_s() - self._reported_at_s >= REPORTED_EVERY_S:
            self._reported_at_s = self._clock.elapsed_s()
            self._report(prompt.tokens, model_tokens)
        return True

    def cuts(self, prompt_tokens: int) -> bool:
        """Returns whether a prompt of this size is likely to be cut."""
        return self.cuts_prompts_from_tokens is not None and prompt_tokens >= self.cuts_prompts_from_tokens

    def forget(self) -> None:
        self.cuts_prompts_from_tokens, self.read_tokens = None, 0
