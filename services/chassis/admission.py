"""How many may run at once: found out by how long they queue (`queueing.py`), and shared fairly between keys.

A `Gate` lets somebody in or refuses at once; nobody waits at it, since whoever waits is a queue that nobody measures.
Its limit is no guess. Until queueing was seen there is none but `most`; then it falls below what was running, and grows
again while it is used up and nothing queues. Whoever is in stays in, whatever the limit does.

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final

from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason
from services.chassis.queueing import NO_GROWTH_S, Signal

# Below this, what is slow is not slow because of us.
LEAST: Final = 4
NO_LIMIT: Final = 1_000_000
# The limit may be passed this far by keys that run less than their share, while those above theirs end.
OVERCOMMITMENT: Final = 1.5

GROWTH: Final = 1.1
MILDEST_CUT: Final = 0.9
HARDEST_CUT: Final = 0.5

SOONEST_RETRY_S: Final = 1.0
LATEST_RETRY_S: Final = 10.0
LONGEST_CLOSED_S: Final = 60.0
# Over how long places given back and refusals are counted.
_PACE_S: Final = 5.0


class Gate:
    def __init__(
        self,
        what: str,
        clock: Clock,
        *,
        least: int = LEAST,
        most: int = NO_LIMIT,
        on_least: Callable[[], None] = lambda: None,
        count_waiting: Callable[[], int] = lambda: 0,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`what` is what the refused are told is saturated. `on_least` is called when it still queues at the least;
        `count_waiting` where it can be seen how many of those who are in wait at this moment."""
        self._what = what
        self._clock = clock
        self._least = min(least, most)
        self._most = most
        self._on_least = on_least
        self._count_waiting = count_waiting
        self._dice = dice
        self.limit = float(most)
        self.running = 0
        # Of keys that run anything.
        self.running_by_key: dict[str, int] = {}
        self._signals: list[Signal] = []
        # Since the last verdict.
        self._peak = 0
        self._used_up = False
        # After a cut: how many must leave before samples say anything about the new limit; and since when they do.
        self._unsettled = 0
        self._settled_at_s = -math.inf
        self._no_growth_until_s = -math.inf
        self._closed_until_s = -math.inf
        self._left = _Pace()
        self._refused = _Pace()

    def enter(self, key_id: str) -> "Place":
        """Raises SATURATED."""
        refusal = self.refusal(key_id)
        if refusal is not None:
            raise refusal
        self.running += 1
        self.running_by_key[key_id] = self.running_by_key.get(key_id, 0) + 1
        self._peak = max(self._peak, self.running)
        return Place(self, key_id, self._clock.elapsed_s())

    def refusal(self, key_id: str) -> LegatoError | None:
        """What one who comes now is told, and counts as such; None where there is room."""
        now_s = self._clock.elapsed_s()
        if now_s < self._closed_until_s:
            return self._refusal(self._closed_until_s - now_s)
        if self._has_room_for(key_id):
            return None
        self._used_up = True
        self._refused.add(now_s)
        return self._refusal(self._until_places_are_free_s(now_s))

    def turned_away(self, began_s: float, retry_after_s: float | None) -> LegatoError:
        """Whoever does the work had no room for one who was let in at `began_s`. Gives what that one may be told."""
        now_s = self._clock.elapsed_s()
        if self._signals and self.counts_from(began_s):
            # Where nothing is measured, nothing would ever let the limit grow again.
            self._cut(self._base() * (1 - MILDEST_CUT))
        self._no_growth_until_s = now_s + NO_GROWTH_S
        if retry_after_s is None:
            return self._refusal(self._until_places_are_free_s(now_s))
        self._closed_until_s = max(self._closed_until_s, now_s + min(retry_after_s, LONGEST_CLOSED_S))
        return self._refusal(self._closed_until_s - now_s)

    def counts_from(self, began_s: float) -> bool:
        """Whether what was measured since then is due to the limit as it is now."""
        return not self._unsettled and began_s >= self._settled_at_s

    def leave(self, key_id: str) -> None:
        """For places alone, which know whether they were given back."""
        now_s = self._clock.elapsed_s()
        self._left.add(now_s)
        self.running -= 1
        own = self.running_by_key[key_id] - 1
        if own:
            self.running_by_key[key_id] = own
        else:
            del self.running_by_key[key_id]
        if self._unsettled:
            self._unsettled = 0 if self.running <= self.limit else self._unsettled - 1
            self._settled_at_s = now_s

    def add(self, signal: Signal) -> None:
        self._signals.append(signal)

    def judge(self, pressure: float, tolerated_s: float | None) -> None:
        """By the verdict of one of the signals; none of the others may object to growth."""
        if pressure > 1:
            self._cut(self._surplus(pressure, tolerated_s))
        elif (
            self._used_up
            and self._clock.elapsed_s() >= self._no_growth_until_s
            and not any(signal.objects() for signal in self._signals)
        ):
            self.limit = min(self._most, self.limit + max(1.0, self._step(tolerated_s)))
        self._begin_round()

    def _surplus(self, pressure: float, tolerated_s: float | None) -> float:
        """How many too many are running. Where they are known to wait in a queue, Little's law says how long it is."""
        base = self._base()
        leave_per_s = self._left.per_s(self._clock.elapsed_s())
        if tolerated_s is None or not leave_per_s:
            return base * (1 - min(MILDEST_CUT, max(HARDEST_CUT, 1 / pressure)))
        by_time = leave_per_s * tolerated_s * (pressure - 1)
        by_count = self._count_waiting() - leave_per_s * tolerated_s
        return min(base * (1 - HARDEST_CUT), max(1.0, by_time, by_count))

    def _step(self, tolerated_s: float | None) -> float:
        """By how much the limit may grow before it is measured again; not by more than may wait."""
        step = self.limit * (GROWTH - 1)
        if tolerated_s is None:
            return step
        return min(step, self._left.per_s(self._clock.elapsed_s()) * tolerated_s)

    def _base(self) -> float:
        """What the samples of this round are due to."""
        return min(self.limit, self._peak)

    def _has_room_for(self, key_id: str) -> bool:
        """Where a constant says how many there may be at most, what lies below it is kept for the small ones."""
        if self.running < min(self.limit, self._most / OVERCOMMITMENT):
            return True
        self._used_up = True
        if self.running >= min(self.limit * OVERCOMMITMENT, self._most):
            return False
        own = self.running_by_key.get(key_id, 0)
        keys = len(self.running_by_key) + (own == 0)
        return own < max(1.0, self.limit / keys)

    def _cut(self, surplus: float) -> None:
        """Below what was running. One verdict is due to one limit: the next waits until this one is in force."""
        if self.limit <= self._least:
            self._on_least()
            return
        if self._peak <= self._least:
            return
        self.limit = max(self._least, self._base() - surplus)
        self._settled_at_s = self._clock.elapsed_s()
        # All who run now, where it never comes to be fewer than the limit: small keys may be let in beyond it.
        self._unsettled = self.running if self.running > self.limit else 0
        self._begin_round()
        for signal in self._signals:
            signal.forget()

    def _begin_round(self) -> None:
        self._peak = self.running
        self._used_up = False

    def _until_places_are_free_s(self, now_s: float) -> float:
        """About as long as it takes until there are places for all who are sent away now; not the same for each of
        them, or they would all come back together."""
        left_per_s = self._left.per_s(now_s)
        wait_s = self._refused.per_s(now_s) / left_per_s if left_per_s else LATEST_RETRY_S
        latest_s = min(LATEST_RETRY_S, 2 * max(SOONEST_RETRY_S, wait_s))
        return SOONEST_RETRY_S + self._dice() * (latest_s - SOONEST_RETRY_S)

    def _refusal(self, retry_after_s: float) -> LegatoError:
        return LegatoError(
            Reason.SATURATED, f"{self._what} is saturated right now. Please retry.", retry_after_s=retry_after_s
        )


class Place:
    """That of one who was let in. It is given back once, however often that is said."""

    __slots__ = ("_gate", "_key_id", "entered_s")

    def __init__(self, gate: Gate, key_id: str, entered_s: float) -> None:
        self._gate: Gate | None = gate
        self._key_id = key_id
        self.entered_s = entered_s

    def leave(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.leave(self._key_id)

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()


class _Pace:
    """How often something happened in the last seconds: older events count less and less."""

    def __init__(self) -> None:
        self._events = 0.0
        self._at_s = 0.0

    def add(self, now_s: float) -> None:
        self._events = self._decayed(now_s) + 1
        self._at_s = now_s

    def per_s(self, now_s: float) -> float:
        return self._decayed(now_s) / _PACE_S

    def _decayed(self, now_s: float) -> float:
        return self._events * math.exp((self._at_s - now_s) / _PACE_S)
