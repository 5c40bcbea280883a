"""Detects a hanging process: it lives, and does not answer its health check."""

from typing import Final

# A few missed checks may be chance.
LEAST_MISSES: Final = 4
# How late the supervisor itself may be. If it is later, the machine was suspended or has no CPU time to give, and a
# missed check says nothing about the process.
LATE_S: Final = 1.0


class Responsiveness:
    """Tracks the checks of one run of a process. Its clock does not advance while the machine sleeps."""

    def __init__(self, started_at_s: float, *, start_timeout_s: float, unresponsive_after_s: float) -> None:
        # A process has the start timeout until its first answer.
        self._allowed_s = max(start_timeout_s, unresponsive_after_s)
        self._allowed_later_s = unresponsive_after_s
        self._silent_since_s = started_at_s
        self._misses = 0

    def note_answer(self, now_s: float) -> None:
        self._allowed_s = self._allowed_later_s
        self._begin_again(now_s)

    def note_miss(self, due_at_s: float, began_at_s: float, ended_at_s: float, timeout_s: float) -> bool:
        """Returns whether the process hangs. The check was due at `due_at_s` and had a timeout of `timeout_s`."""
        if began_at_s - due_at_s > LATE_S or ended_at_s - began_at_s > timeout_s + LATE_S:
            self._begin_again(ended_at_s)
            return False
        self._misses += 1
        return self._misses >= LEAST_MISSES and self.silent_s(ended_at_s) >= self._allowed_s

    def silent_s(self, now_s: float) -> float:
        return now_s - self._silent_since_s

    def _begin_again(self, now_s: float) -> None:
        self._silent_since_s = now_s
        self._misses = 0
