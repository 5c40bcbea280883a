"""Knows how quickly a model writes, and so whether a short answer may be asked for whole.

A whole answer is one object in place of an event for each token, which spares the router most of the work of reading
it. But the model is silent until it has written everything, and a long answer would look like a dead server. So an
answer is asked for whole only if it will be here long before a first token would be overdue; the timeout of the first
token then holds for all of it.
"""

from typing import Final

from services.router.models.call_result import CallObserver, CallPlan, CallResult

# An answer that is expected within this time is asked for whole: a quarter of the least timeout of a first token.
WHOLE_WITHIN_S: Final = 7.5
# One that took longer was no such answer.
NOT_WHOLE_AFTER_S: Final = 2 * WHOLE_WITHIN_S
# No model is expected to write faster: what arrives at once does not predict longer answers.
LEAST_TOKEN_S: Final = 0.005
# Shorter answers are no measure of the time of a token.
LEAST_TOKENS: Final = 8
# How much of an improvement one answer is believed. A slower one is believed at once.
FASTER_SHARE: Final = 0.125


class AnswerPace(CallObserver):
    """The pace of one model, by its recent answers."""

    __slots__ = ("_first_token_s", "_token_s")

    def __init__(self) -> None:
        self._first_token_s = 0.0
        # None while it is not known.
        self._token_s: float | None = None

    def whole_answer_s(self, max_tokens: int) -> float | None:
        """Returns how long the longest answer takes if it is to be asked for whole, else None."""
        if self._token_s is None:
            return None
        answer_s = self._first_token_s + max_tokens * self._token_s
        return answer_s if answer_s <= WHOLE_WITHIN_S else None

    def on_result(self, plan: CallPlan, result: CallResult) -> None:
        if result.has_timed_out and plan.whole_s is not None:
            self.forget()
        if result.answer.finished is None or not result.is_whole:
            return
        if result.first_token_s is None:
            self.record_whole(result.duration_s)
        else:
            completion_tokens = result.answer.finished.usage.completion_tokens
            self.record_streamed(result.first_token_s, result.duration_s, completion_tokens)

    def record_streamed(self, first_token_s: float, answer_s: float, tokens: int) -> None:
        """Records an answer that was streamed, by the time to its first token and to its end."""
        if tokens < LEAST_TOKENS:
            return
        token_s = max(LEAST_TOKEN_S, (answer_s - first_token_s) / tokens)
        self._first_token_s = _believed(self._first_token_s, first_token_s)
        self._token_s = token_s if self._token_s is None else _believed(self._token_s, token_s)

    def record_whole(self, answer_s: float) -> None:
        """Records an answer that was asked for whole. After one that took too long, answers are streamed again."""
        if answer_s > NOT_WHOLE_AFTER_S:
            self.forget()

    def forget(self) -> None:
        self._token_s = None


def _believed(before: float, now: float) -> float:
    return now if now >= before else before + FASTER_SHARE * (now - before)
