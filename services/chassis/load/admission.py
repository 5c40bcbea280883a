"""Limits concurrency: by a constant, by the backend's own limit, or adaptively from queueing; fair between keys.

A `Gate` admits or refuses at once; nothing waits at it, since that would be a queue that is not measured. The measured
limit starts at `most`. When queueing is detected it falls below what was running, and grows again while it is used up
and nothing queues. A limit that no queueing confirms expires within seconds. Admitted requests stay admitted, whatever
the limit does.

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.deadlines import Clock

# Below this, slowness is not due to our own load.
LEAST: Final = 4
NO_LIMIT: Final = 1_000_000
# Keys below their fair share may exceed the limit by this factor, while requests of the others end.
OVERCOMMITMENT: Final = 1.5
# Each further round in a row without queueing doubles the growth.
GROWTH: Final = 1.1
MILDEST_CUT: Final = 0.9
HARDEST_CUT: Final = 0.5
# How long a limit lasts that no queueing confirms. Where the admitted requests themselves queue, it counts from when
# the limit is in force, and lasts at least this many turnovers of the running requests.
LIFETIME_S: Final = 5.0
TURNOVERS: Final = 1.5
LONGEST_LIFETIME_S: Final = 30.0

SOONEST_RETRY_S: Final = 1.0
LATEST_RETRY_S: Final = 10.0
# The keys refused in the last LATEST_RETRY_S that are remembered, and so have a share of the places.
MOST_REFUSED_KEYS: Final = 256
# Time constant over which releases and refusals are averaged.
_PACE_S: Final = 5.0

# A verdict needs this many samples over this much time. Samples of a stale round are discarded.
LEAST_SAMPLES: Final = 8
ROUND_S: Final = 0.25
STALE_S: Final = 60.0
# After a signal reported queueing, limits do not grow for this long.
NO_GROWTH_S: Final = 1.0
# The sample that counts is the lower quartile of a round.
LOWEST_QUARTER: Final = 0.25


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
        """Creates a gate; `what` names the saturated resource in refusals. `on_false_alarm` is called when a limit is
        lifted that has not helped, or that still queues at the least; `count_waiting` returns how many admitted
        requests wait right now, where that is known."""
        # Returns how many of `most` are this gate's at present, where several gates share them.
        self.count_places: Callable[[], int] | None = None
        self._what = what
        self._clock = clock
        self._least = min(least, most)
        self.most = most
        self._lifetime_s = lifetime_s
        self._on_false_alarm = on_false_alarm
        self._count_waiting = count_waiting
        self._dice = dice
        # The limit that the backend itself announces.
        self.told_limit = math.inf
        self._measured = float(most)
        # Set if all samples that led to the limit were of one key: it then applies to that key alone.
        self._limited_key_id: str | None = None
        self._expires_at_s = math.inf
        self._has_queue = False
        # Whether any round was without queueing since the limit was first cut.
        self._has_helped = False
        self._calm_rounds = 0
        self.running = 0
        # Only keys with running requests.
        self.running_by_key: dict[str, int] = {}
        # When keys without a place were last refused or let in again, the one longest ago first.
        self._refused_keys: dict[str, float] = {}
        self._signals: list[QueueingSignal] = []
        # Both since the last verdict.
        self._peak = 0
        self._used_up = False
        # After a cut: how many must finish before samples reflect the new limit; and since when they do.
        self._unsettled = 0
        self._settled_at_s = -math.inf
        self._left = _Pace()
        self._refused = _Pace()

    @property
    def limit(self) -> float:
        if self._measured < self.most:
            self._lift_if_expired()
        return max(1.0, min(self._measured, self.told_limit))

    def acquire(self, key_id: str) -> "Permit":
        """Admits a request, or raises SATURATED."""
        if not self.has_room_for(key_id):
            self._used_up = True
            self._remember_refused(key_id)
            raise self.refuse()
        if key_id in self._refused_keys:
            self._remember_refused(key_id)
        self.running += 1
        self.running_by_key[key_id] = self.running_by_key.get(key_id, 0) + 1
        self._peak = max(self._peak, self.running)
        return Permit(self, key_id, self._clock.elapsed_s())

    def has_room_for(self, key_id: str) -> bool:
        """Returns whether the key may run another; a constant limit keeps some places for keys under their fair
        share, those that were refused lately among them."""
        most = self.most if self.count_places is None else self.count_places()
        limit, own = min(self.limit, max(1, most)), self.running_by_key.get(key_id, 0)
        if self._limited_key_id == key_id and own >= limit:
            return False
        if self._limited_key_id is not None:
            limit = min(most, self.told_limit)
        if self.running < min(limit, most / OVERCOMMITMENT):
            return True
        self._used_up = True
        if self.running >= min(limit * OVERCOMMITMENT, most):
            return False
        keys = len(self.running_by_key) + (own == 0) + self._count_refused(key_id)
        # One place more of a constant limit, which is not exceeded: not all keys want theirs at the same time.
        share = limit / keys + (most < NO_LIMIT)
        return own < max(1.0, share)

    def refusal(self, key_id: str) -> LegatoError | None:
        """Returns and counts the refusal for a request that arrives now; None if there is capacity."""
        if self.has_room_for(key_id):
            return None
        self._used_up = True
        return self.refuse()

    def refuse(self, retry_after_s: float | None = None, latest_s: float = LATEST_RETRY_S) -> LegatoError:
        """Builds and counts a refusal, whatever decided it."""
        now_s = self._clock.elapsed_s()
        self._refused.add(now_s)
        if retry_after_s is None:
            retry_after_s = min(latest_s, self._until_places_are_free_s(now_s))
        message = f"{self._what} is saturated right now. Please retry."
        return LegatoError(Reason.SATURATED, message, retry_after_s=retry_after_s)

    def counts_from(self, began_s: float) -> bool:
        """Returns whether samples of work that began then reflect the current limit."""
        return not self._unsettled and began_s >= self._settled_at_s

    def release(self, key_id: str) -> None:
        """Frees a permit's place; only permits call it, once each."""
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

    def add(self, signal: "QueueingSignal") -> None:
        self._signals.append(signal)

    def judge(self, pressure: float, tolerated_s: float | None, only_key_id: str | None = None) -> None:
        """Adjusts the limit to one signal's verdict; it grows only if no other signal objects."""
        self._lift_if_expired()
        if pressure > 1 and self._unsettled:
            self._confirm()
        elif pressure > 1:
            self._calm_rounds = 0
            self._limited_key_id = only_key_id
            self._cut(self._surplus(pressure, tolerated_s), has_queue=tolerated_s is not None)
        elif self._measured < self.most:
            self._has_helped = True
            if self._used_up and not any(signal.objects() for signal in self._signals):
                self._measured = min(self.most, self._measured + max(1.0, self._step(tolerated_s)))
                self._calm_rounds += 1
        self._begin_round()

    def lift(self) -> None:
        """Lifts the limit: what was taken for queueing was none."""
        if self._measured < self.most:
            self._has_helped = True
            self._lift()

    def _remember_refused(self, key_id: str) -> None:
        self._refused_keys.pop(key_id, None)
        self._refused_keys[key_id] = self._clock.elapsed_s()
        if len(self._refused_keys) > MOST_REFUSED_KEYS:
            del self._refused_keys[next(iter(self._refused_keys))]

    def _count_refused(self, key_id: str) -> int:
        """Returns how many other keys run nothing and were refused lately."""
        oldest_s = self._clock.elapsed_s() - LATEST_RETRY_S
        while self._refused_keys and self._refused_keys[first := next(iter(self._refused_keys))] <= oldest_s:
            del self._refused_keys[first]
        return sum(other != key_id and other not in self.running_by_key for other in self._refused_keys)

    def _surplus(self, pressure: float, tolerated_s: float | None) -> float:
        """Estimates how many requests run in excess. If they are known to queue, Little's law gives the queue's
        length."""
        base = self._base()
        leave_per_s = self._left.per_s(self._clock.elapsed_s())
        if tolerated_s is None or not leave_per_s:
            return base * (1 - min(MILDEST_CUT, max(HARDEST_CUT, 1 / pressure)))
        by_time = leave_per_s * tolerated_s * (pressure - 1)
        by_count = self._count_waiting() - leave_per_s * tolerated_s
        return min(base * (1 - HARDEST_CUT), max(1.0, by_time, by_count))

    def _step(self, tolerated_s: float | None) -> float:
        """Returns by how much the limit may grow before the next verdict; in the first round at most by what may
        wait."""
        step = self._measured * (GROWTH - 1)
        if tolerated_s is not None:
            step = min(step, self._left.per_s(self._clock.elapsed_s()) * tolerated_s)
        return step * 2.0**self._calm_rounds

    def _base(self) -> float:
        """Returns the concurrency that the samples reflect."""
        return min(self._measured, self._peak)

    def _cut(self, surplus: float, *, has_queue: bool) -> None:
        """Cuts the limit below what was running. Samples count again once the new limit is in force."""
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
        if self._measured >= self.most:
            self._has_helped = False
        self._measured = max(self._least, self._base() - surplus)
        self._settled_at_s = now_s
        # All that run now, in case the number never falls below the limit: small keys may exceed it.
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
        """Extends the limit's lifetime while queueing persists."""
        self._expires_at_s = max(self._expires_at_s, self._clock.elapsed_s() + self._lifetime_s)

    def _lift_if_expired(self) -> None:
        if self._measured < self.most and self._clock.elapsed_s() >= self._expires_at_s:
            self._lift()

    def _lift(self) -> None:
        self._measured = float(self.most)
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
        """Returns about how long it takes until all who are refused now would find a place, with jitter, or they would
        all retry at the same time."""
        left_per_s = self._left.per_s(now_s)
        wait_s = self._refused.per_s(now_s) / left_per_s if left_per_s else LATEST_RETRY_S
        latest_s = min(LATEST_RETRY_S, 2 * max(SOONEST_RETRY_S, wait_s))
        return SOONEST_RETRY_S + self._dice() * (latest_s - SOONEST_RETRY_S)


class Permit:
    """The place of one admitted request. Releasing it more than once has no effect."""

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
    """An exponentially decaying event rate."""

    def __init__(self) -> None:
        self._events = 0.0
        self._at_s = 0.0

    def add(self, now_s: float) -> None:
        self._events = self._events * math.exp((self._at_s - now_s) / _PACE_S) + 1
        self._at_s = now_s

    def per_s(self, now_s: float) -> float:
        return self._events * math.exp((self._at_s - now_s) / _PACE_S) / _PACE_S


class QueueingSignal:
    """One measure of queueing. A low sample of each round counts: in a queue every request waits, so a few slow ones
    are not taken for a queue."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        tolerated_s: float | None = None,
        *,
        share: float = LOWEST_QUARTER,
        least_samples: int = LEAST_SAMPLES,
        round_s: float = ROUND_S,
    ) -> None:
        """Measures for `gate`; `tolerated_s` is the tolerated wait, given where the admitted requests themselves queue.
        `share` is the share of a round's samples that may be low although there is a queue."""
        self._gate = gate
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._share = share
        self._least_samples = least_samples
        self._round_s = round_s
        self._samples: list[float] = []
        self._key_ids: set[str] = set()
        self._round_began_at_s = 0.0
        self._objected_at_s = -math.inf
        gate.add(self)

    def note(self, pressure: float, began_s: float, key_id: str = "") -> None:
        """Adds a sample of work that began then: its queueing time as a multiple of the tolerated one, and the key it
        belongs to, where that may be the cause."""
        if self._tolerated_s is not None and not self._gate.counts_from(began_s):
            return
        now_s = self._clock.elapsed_s()
        if not self._samples or now_s - self._round_began_at_s > STALE_S:
            self.forget()
            self._round_began_at_s = now_s
        self._samples.append(pressure)
        self._key_ids.add(key_id)
        if len(self._samples) >= self._least_samples and now_s - self._round_began_at_s >= self._round_s:
            pressure = low_sample(self._samples, self._share)
            only_key_id = next(iter(self._key_ids)) if len(self._key_ids) == 1 else ""
            self.forget()
            self._objected_at_s = now_s if pressure > 1 else -math.inf
            self._gate.judge(pressure, self._tolerated_s, only_key_id or None)

    def withdraw(self, pressure: float) -> None:
        """Removes a sample with this pressure, which turned out not to be due to a queue."""
        if pressure in self._samples:
            self._samples.remove(pressure)

    def objects(self) -> bool:
        """Returns whether its last verdict, of the last second, was that there is a queue: then no limit grows."""
        return self._clock.elapsed_s() - self._objected_at_s < NO_GROWTH_S

    def forget(self) -> None:
        self._samples.clear()
        self._key_ids.clear()


def low_sample(samples: Sequence[float], share: float = LOWEST_QUARTER) -> float:
    """Returns the sample above this share of them."""
    return sorted(samples)[int(len(samples) * share)]
