"""How many may run at once: a constant, what whoever does the work says, or found out by how long they queue
(`queueing.py`); and shared fairly between keys.

A `Gate` lets somebody in or refuses at once; nobody waits at it, since whoever waits is a queue that nobody measures.
Its limit is no guess. Until queueing was seen there is none but `most`; then it falls below what was running, and grows
again while it is used up and nothing queues. A limit that no queue confirms is gone after seconds, whatever it was
made for. Whoever is in stays in, whatever the limit does.

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.queueing import QueueingSignal
from services.chassis.timing.clock import Clock

# Below this, what is slow is not slow because of us.
LEAST: Final = 4
NO_LIMIT: Final = 1_000_000
# The limit may be passed this far by keys that run less than their share, while those above theirs end.
OVERCOMMITMENT: Final = 1.5

# With each round in a row in which nothing queues, the limit grows by twice as much as with the one before.
GROWTH: Final = 1.1
MILDEST_CUT: Final = 0.9
HARDEST_CUT: Final = 0.5
# How long a limit lasts that no queue confirms. Where it is those who were let in that queue: from when it is in force,
# and so many times as long as a place takes to be free again, if that is longer.
LIFETIME_S: Final = 5.0
TURNOVERS: Final = 1.5
LONGEST_LIFETIME_S: Final = 30.0

SOONEST_RETRY_S: Final = 1.0
LATEST_RETRY_S: Final = 10.0
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
        lifetime_s: float = LIFETIME_S,
        on_false_alarm: Callable[[], None] | None = None,
        count_waiting: Callable[[], int] = lambda: 0,
        dice: Callable[[], float] = random.random,
    ) -> None:
        """`what` is what the refused are told is saturated. `on_false_alarm` is called when a limit was lifted because
        it has not helped, or queues even at the least; `count_waiting` says, where that can be seen, how many of those
        who are in wait at this moment."""
        self._what = what
        self._clock = clock
        self._least = min(least, most)
        self._most = most
        self._lifetime_s = lifetime_s
        self._on_false_alarm = on_false_alarm
        self._count_waiting = count_waiting
        self._dice = dice
        # What whoever does the work says that it can bear.
        self.told_limit = math.inf
        self._measured = float(most)
        # Where all the samples that brought a limit were of one key, it is the limit of that key alone.
        self._limited_key_id: str | None = None
        self._expires_at_s = math.inf
        self._has_queue = False
        # Whether anything was in time again since the limit was first cut.
        self._has_helped = False
        self._calm_rounds = 0
        self.running = 0
        # Of keys that run anything.
        self.running_by_key: dict[str, int] = {}
        self._signals: list[QueueingSignal] = []
        # Since the last verdict.
        self._peak = 0
        self._used_up = False
        # After a cut: how many must leave before samples say anything about the new limit; and since when they do.
        self._unsettled = 0
        self._settled_at_s = -math.inf
        self._left = _Pace()
        self._refused = _Pace()

    @property
    def limit(self) -> float:
        self._lift_if_expired()
        return max(1.0, min(self._measured, self.told_limit))

    def acquire(self, key_id: str) -> "Permit":
        """Raises SATURATED."""
        refusal = self.refusal(key_id)
        if refusal is not None:
            raise refusal
        self.running += 1
        self.running_by_key[key_id] = self.running_by_key.get(key_id, 0) + 1
        self._peak = max(self._peak, self.running)
        return Permit(self, key_id, self._clock.elapsed_s())

    def refusal(self, key_id: str) -> LegatoError | None:
        """What one who comes now is told, and counts as such; None where there is room."""
        if self._has_room_for(key_id):
            return None
        self._used_up = True
        return self.refuse()

    def refuse(self, retry_after_s: float | None = None, latest_s: float = LATEST_RETRY_S) -> LegatoError:
        """What one is told for whom there is no room, whoever said so."""
        now_s = self._clock.elapsed_s()
        self._refused.add(now_s)
        if retry_after_s is None:
            retry_after_s = min(latest_s, self._until_places_are_free_s(now_s))
        message = f"{self._what} is saturated right now. Please retry."
        return LegatoError(Reason.SATURATED, message, retry_after_s=retry_after_s)

    def counts_from(self, began_s: float) -> bool:
        """Whether what was measured since then is due to the limit as it is now."""
        return not self._unsettled and began_s >= self._settled_at_s

    def release(self, key_id: str) -> None:
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
            self._unsettled = 0 if self.running <= self._measured else self._unsettled - 1
            self._settled_at_s = now_s
            if not self._unsettled:
                self._forget_samples()
                if self._has_queue:
                    self._expires_at_s = now_s + self._life_s(now_s)

    def add(self, signal: QueueingSignal) -> None:
        self._signals.append(signal)

    def judge(self, pressure: float, tolerated_s: float | None, only_key_id: str | None = None) -> None:
        """By the verdict of one of the signals; none of the others may object to growth."""
        self._lift_if_expired()
        if pressure > 1 and self._unsettled:
            self._confirm()
        elif pressure > 1:
            self._calm_rounds = 0
            self._limited_key_id = only_key_id
            self._cut(self._surplus(pressure, tolerated_s), has_queue=tolerated_s is not None)
        elif self._measured < self._most:
            self._has_helped = True
            if self._used_up and not any(signal.objects() for signal in self._signals):
                self._measured = min(self._most, self._measured + max(1.0, self._step(tolerated_s)))
                self._calm_rounds += 1
        self._begin_round()

    def lift(self) -> None:
        """What was taken for a queue is none."""
        if self._measured < self._most:
            self._has_helped = True
            self._lift()

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
        """By how much the limit may grow before it is measured again; at first not by more than may wait."""
        step = self._measured * (GROWTH - 1)
        if tolerated_s is not None:
            step = min(step, self._left.per_s(self._clock.elapsed_s()) * tolerated_s)
        return step * 2.0**self._calm_rounds

    def _base(self) -> float:
        """What the samples of this round are due to."""
        return min(self._measured, self._peak)

    def _has_room_for(self, key_id: str) -> bool:
        """Where a constant says how many there may be at most, what lies below it is kept for the small ones."""
        limit, own = self.limit, self.running_by_key.get(key_id, 0)
        if self._limited_key_id == key_id and own >= limit:
            return False
        if self._limited_key_id is not None:
            limit = min(self._most, self.told_limit)
        if self.running < min(limit, self._most / OVERCOMMITMENT):
            return True
        self._used_up = True
        if self.running >= min(limit * OVERCOMMITMENT, self._most):
            return False
        keys = len(self.running_by_key) + (own == 0)
        return own < max(1.0, limit / keys)

    def _cut(self, surplus: float, *, has_queue: bool) -> None:
        """Below what was running. One verdict is due to one limit: the next waits until this one is in force."""
        if self._measured <= self._least:
            self._has_helped = False
            if self._on_false_alarm is None:
                self._confirm()
            else:
                self._lift()
            return
        if self._peak <= self._least:
            return
        now_s = self._clock.elapsed_s()
        if self._measured >= self._most:
            self._has_helped = False
        self._measured = max(self._least, self._base() - surplus)
        self._settled_at_s = now_s
        # All who run now, where it never comes to be fewer than the limit: small keys may be let in beyond it.
        self._unsettled = self.running if self.running > self._measured else 0
        self._has_queue = has_queue
        self._expires_at_s = now_s + (LONGEST_LIFETIME_S if self._unsettled and has_queue else self._life_s(now_s))
        self._begin_round()
        self._forget_samples()

    def _life_s(self, now_s: float) -> float:
        left_per_s = self._left.per_s(now_s)
        if not self._has_queue or not left_per_s:
            return self._lifetime_s
        return min(LONGEST_LIFETIME_S, max(self._lifetime_s, TURNOVERS * self.running / left_per_s))

    def _confirm(self) -> None:
        """The queue for which the limit was cut is still there."""
        self._expires_at_s = max(self._expires_at_s, self._clock.elapsed_s() + self._lifetime_s)

    def _lift_if_expired(self) -> None:
        if self._measured < self._most and self._clock.elapsed_s() >= self._expires_at_s:
            self._lift()

    def _lift(self) -> None:
        self._measured = float(self._most)
        self._limited_key_id = None
        self._unsettled = self._calm_rounds = 0
        self._settled_at_s = self._clock.elapsed_s()
        self._forget_samples()
        if not self._has_helped and self._on_false_alarm is not None:
            self._on_false_alarm()

    def _forget_samples(self) -> None:
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


class Permit:
    """That of one who was let in. It is given back once, however often that is said."""

    __slots__ = ("_gate", "entered_s", "key_id")

    def __init__(self, gate: Gate, key_id: str, entered_s: float) -> None:
        self._gate: Gate | None = gate
        self.key_id = key_id
        self.entered_s = entered_s

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.release(self.key_id)

    def __enter__(self) -> "Permit":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


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
