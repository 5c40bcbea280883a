"""Tries a new model for some accounts of a class, and gives it up when it fails clearly more than the others.

Each router judges by the calls that it makes itself. A failure before the answer counts against the new model only if
another model then answered the chat: what no model answers says nothing about this one.

Pure: no clock, no task, no lock. Used by a single event loop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from services.router.routes.class_route import CanaryRoute

# A bad start or a breakdown: so many failures in a row, while the others answer and have failed less often than this.
FAILURES_IN_A_ROW: Final = 5
MOST_BASELINE_SHARE: Final = 0.1
# Otherwise, after at least so many calls: a sequential test of the hypothesis that it fails by the margin more often
# against the one that it fails as often. Whenever it is looked at, the odds of being wrong are one to `EVIDENCE`.
LEAST_CALLS: Final = 20
MARGIN: Final = 0.05
EVIDENCE: Final = 1000
# With so many calls, the counts of both are halved, so that a long good time does not hide a bad one.
MOST_CALLS: Final = 400
# Before their first call, the others are thought to have failed once in so many: a share of 5 % until more is known.
_PRIOR_CALLS: Final = 20

_HASH_BYTES: Final = 8
_HASHES: Final = float(1 << 8 * _HASH_BYTES)


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0

    def note(self, *, failed: bool) -> None:
        self.calls += 1
        self.failures += failed

    def __str__(self) -> str:
        return f"{self.failures} of {self.calls} calls"

    def halve(self) -> None:
        self.calls, self.failures = self.calls // 2, self.failures // 2


class Canary:
    def __init__(self, class_id: str, route: CanaryRoute, on_rollback: "Callable[[Canary], None]") -> None:
        self.class_id = class_id
        self.route = route
        self._on_rollback = on_rollback
        self.resume()

    def resume(self) -> None:
        """Sends accounts to the model, and judges it anew."""
        self.is_rolled_back = False
        self.tally, self.baseline = Tally(), Tally()
        self._failures_in_a_row = 0
        # The calls of the others since the first of these failures.
        self._meanwhile = Tally()

    def includes(self, account_id: str) -> bool:
        """Returns whether the model is tried first for an account. A higher percentage includes the same accounts, and
        others."""
        if self.is_rolled_back:
            return False
        return account_id in self.route.accounts or self._place_of(account_id) < self.route.percent / 100

    def _place_of(self, account_id: str) -> float:
        """Returns a number from 0 up to 1 that is always the same for an account, a class and a model."""
        key = "\n".join((account_id, self.class_id, self.route.target.model_name))
        digest = blake2b(key.encode(), digest_size=_HASH_BYTES).digest()
        return int.from_bytes(digest) / _HASHES

    def note(self, *, is_canary: bool, failed: bool) -> None:
        """Judges by the end of a call to the model, or to another of the class."""
        if self.is_rolled_back:
            return
        if is_canary:
            if failed and not self._failures_in_a_row:
                self._meanwhile = Tally()
            self._failures_in_a_row = self._failures_in_a_row + 1 if failed else 0
            self.tally.note(failed=failed)
        else:
            self._meanwhile.note(failed=failed)
            self.baseline.note(failed=failed)
        if self.tally.calls >= MOST_CALLS:
            self.tally.halve()
            self.baseline.halve()
        if self._fails_in_a_row() or self._fails_more():
            self.is_rolled_back = True
            self._on_rollback(self)

    def _fails_in_a_row(self) -> bool:
        if self._failures_in_a_row < FAILURES_IN_A_ROW or self._usual_share() >= MOST_BASELINE_SHARE:
            return False
        return self._meanwhile.failures < MOST_BASELINE_SHARE * self._meanwhile.calls

    def _usual_share(self) -> float:
        """Returns the share of their calls in which the others fail."""
        return (self.baseline.failures + 1) / (self.baseline.calls + _PRIOR_CALLS)

    def _fails_more(self) -> bool:
        calls, failures = self.tally.calls, self.tally.failures
        if calls < LEAST_CALLS:
            return False
        usual = self._usual_share()
        # It may be higher than what was seen.
        usual += math.sqrt(usual * (1 - usual) / (self.baseline.calls + _PRIOR_CALLS))
        worse = usual + MARGIN
        if worse >= 1:
            return False
        likelihood = failures * math.log(worse / usual) + (calls - failures) * math.log((1 - worse) / (1 - usual))
        return likelihood >= math.log(EVIDENCE)
