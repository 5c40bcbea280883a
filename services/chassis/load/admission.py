"""Limits concurrency: by a constant, by the backend's own limit, or adaptively from queueing; fair between keys.

A `Gate` admits or refuses at once; nothing waits at it, since that would be a queue that is not measured. The measured
limit starts at `most`. When queueing is detected it falls below what was running, and grows again while it is used up
and nothing queues. A limit that no queueing confirms expires within seconds. Admitted requests stay admitted, whatever
the limit does.

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
import random
from collections.abc import Callable
from types import TracebackType
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
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
# How long a limit lasts that no queueing confirms.
LIFETIME_S: Final = 5.0

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
        dice: Callable[[], float] = random.random,
    ) -> None:
        """Creates a gate; `what` names the saturated resource in refusals."""
        # Returns how many of `most` are this gate's at present, where several gates share them.
        self._count_places: Callable[[], int] | None = None
        self._what = what
        self._clock = clock
        self._least = min(least, most)
        self.most = most
        self._lifetime_s = lifetime_s
        self._dice = dice
        # The limit that the backend itself announces.
        self.announced_limit = math.inf
        self._measured = float(most)
        self._expires_at_s = math.inf
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
        # After a cut: how many must finish before samples reflect the new limit.
        self._unsettled = 0
        self._left = _Pace()
        self._refused = _Pace()

    @property
    def limit(self) -> float:
        if self._measured < self.most:
            self._lift_if_expired()
        return max(1.0, min(self._measured, self.announced_limit))

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
        return Permit(self, key_id)

    def has_room_for(self, key_id: str) -> bool:
        """Returns whether the key may run another; a constant limit keeps some places for keys under their fair
        share, those that were refused lately among them."""
        most = self.most if self._count_places is None else self._count_places()
        limit, own = min(self.limit, max(1, most)), self.running_by_key.get(key_id, 0)
        if self.running < min(limit, most / OVERCOMMITMENT, most - 1):
            return True
        self._used_up = True
        if self.running >= min(limit * OVERCOMMITMENT, most):
            return False
        keys = len(self.running_by_key) + (own == 0) + self._count_refused(key_id)
        share = limit / keys
        if most < NO_LIMIT and keys > 1:
            # One place more, as the limit is not exceeded: not all keys want theirs at the same time. Never all places.
            share = min(share + 1, most - 1)
        return own < max(1.0, share)

    def refusal(self, key_id: str) -> LegatoError | None:
        """Returns and counts the refusal for a request that arrives now; None if there is capacity."""
        if self.has_room_for(key_id):
            return None
        self._used_up = True
        self._remember_refused(key_id)
        return self.refuse()

    def refuse(self, retry_after_s: float | None = None, latest_s: float = LATEST_RETRY_S) -> LegatoError:
        """Builds and counts a refusal, whatever decided it."""
        now_s = self._clock.elapsed_s()
        self._refused.add(now_s)
        if retry_after_s is None:
            retry_after_s = min(latest_s, self._until_places_are_free_s(now_s))
        return LegatoError(Reason.SATURATED, Sentence("saturated", what=self._what), retry_after_s=retry_after_s)

    def release(self, key_id: str) -> None:
        """Frees a permit's place; only permits call it, once each."""
        self._left.add(self._clock.elapsed_s())
        self.running -= 1
        own = self.running_by_key[key_id] - 1
        if own:
            self.running_by_key[key_id] = own
        else:
            del self.running_by_key[key_id]
        if self._unsettled:
            self._unsettled = 0 if self.running <= self._measured else self._unsettled - 1
            if not self._unsettled:
                self._forget_samples()

    def limit_places(self, count_places: Callable[[], int]) -> None:
        """Has the places of this gate counted anew at each admission."""
        self._count_places = count_places

    def announce(self, limit: float) -> None:
        """Takes over the limit that the backend announces; infinite: it announces none."""
        self.announced_limit = limit

    def add(self, signal: "QueueingSignal") -> None:
        self._signals.append(signal)

    def judge(self, pressure: float) -> None:
        """Adjusts the limit to one signal's verdict; it grows only if no other signal objects."""
        self._lift_if_expired()
        if pressure > 1 and self._unsettled:
            self._confirm()
        elif pressure > 1:
            self._calm_rounds = 0
            self._cut(min(MILDEST_CUT, max(HARDEST_CUT, 1 / pressure)))
        elif self._measured < self.most and self._used_up and not any(signal.objects() for signal in self._signals):
            step = self._measured * (GROWTH - 1) * 2.0**self._calm_rounds
            self._measured = min(self.most, self._measured + max(1.0, step))
            self._calm_rounds += 1
        self._begin_round()

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

    def _cut(self, share: float) -> None:
        """Cuts the limit to a share of what was running. Samples count again once the new limit is in force."""
        if self._measured <= self._least:
            self._confirm()
            return
        if self._peak <= self._least:
            return
        self._measured = max(self._least, share * min(self._measured, self._peak))
        # All that run now, in case the number never falls below the limit: small keys may exceed it.
        self._unsettled = self.running if self.running > self._measured else 0
        self._expires_at_s = self._clock.elapsed_s() + self._lifetime_s
        self._begin_round()
        self._forget_samples()

    def _confirm(self) -> None:
        """Extends the limit's lifetime while queueing persists."""
        self._expires_at_s = max(self._expires_at_s, self._clock.elapsed_s() + self._lifetime_s)

    def _lift_if_expired(self) -> None:
        if self._measured < self.most and self._clock.elapsed_s() >= self._expires_at_s:
            self._lift()

    def _lift(self) -> None:
        self._measured = float(self.most)
        self._unsettled = self._calm_rounds = 0
        self._forget_samples()

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

    __slots__ = ("_gate", "key_id")

    def __init__(self, gate: Gate, key_id: str) -> None:
        self._gate: Gate | None = gate
        self.key_id = key_id

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

    def __init__(self, gate: Gate, clock: Clock, *, share: float = LOWEST_QUARTER, round_s: float = ROUND_S) -> None:
        """Measures for `gate`; `share` is the share of a round's samples that may be low although there is a queue."""
        self._gate = gate
        self._clock = clock
        self._share = share
        self._round_s = round_s
        self._samples: list[float] = []
        self._round_began_at_s = 0.0
        self._objected_at_s = -math.inf
        gate.add(self)

    def record(self, pressure: float) -> None:
        """Adds a sample: a queueing time as a multiple of the tolerated one."""
        now_s = self._clock.elapsed_s()
        if not self._samples or now_s - self._round_began_at_s > STALE_S:
            self.forget()
            self._round_began_at_s = now_s
        self._samples.append(pressure)
        if len(self._samples) >= LEAST_SAMPLES and now_s - self._round_began_at_s >= self._round_s:
            pressure = sorted(self._samples)[int(len(self._samples) * self._share)]
            self.forget()
            self._objected_at_s = now_s if pressure > 1 else -math.inf
            self._gate.judge(pressure)

    def objects(self) -> bool:
        """Returns whether its last verdict, of the last second, was that there is a queue: then no limit grows."""
        return self._clock.elapsed_s() - self._objected_at_s < NO_GROWTH_S

    def forget(self) -> None:
        self._samples.clear()
