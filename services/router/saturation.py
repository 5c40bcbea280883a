"""How busy a model is, by how long it lets a chat wait for the first piece of its answer.

A provider does not say how long its queue is. But the same model needs about the same time to begin with a prompt of
about the same size, so whatever comes on top of that was spent in a queue.
"""

import math
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from services.chassis.admission import NO_LIMIT, Gate, Place
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError
from services.chassis.queueing import LEAST_SAMPLES, Signal, lowest_quarter
from services.router.providers.base import Piece

# Beside which the time that is normal for a model is tolerated once more: sizes that are taken for the same differ by
# a factor of two.
QUEUEING_TOLERATED_S: Final = 0.5
# One that waits for so many times what is tolerated is taken for slow before it is answered.
OVERDUE: Final = 1.25
# A time that has become normal may be twice as long only after this.
DOUBLED_WITHIN_S: Final = 300.0
# Where the provider does not count.
CHARACTERS_PER_TOKEN: Final = 4

# Of a prompt and of its answer, in tokens, each rounded to a power of two, so that there are some hundreds at most.
Size = tuple[int, int]
# In place of the size of an answer of which only the beginning counts.
IN_PIECES: Final = -1


class Saturation:
    """Of one model."""

    def __init__(self, clock: Clock, tolerated_s: float = QUEUEING_TOLERATED_S, concurrency: int | None = None) -> None:
        """Where no time is tolerated, none is measured: then only a constant, and what the provider says, limit it."""
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._normal = Normal(clock)
        # What is slow even where little runs is not slow because of us: then that is normal now.
        self.gate = Gate(
            "The model",
            clock,
            most=concurrency or NO_LIMIT,
            on_least=self._normal.forget,
            count_waiting=lambda: len(self._overdue),
        )
        self._signal = Signal(self.gate, clock, tolerated_s) if tolerated_s else None
        # Those that were asked and have not begun, the oldest first, if it is known how long that should take.
        self._waiting: dict[Visit, float] = {}
        # Those that have waited for too long already, and were counted for it.
        self._overdue: set[Visit] = set()

    def enter(self, key_id: str, prompt_tokens: int, *, is_whole: bool = False) -> "Visit":
        """For one chat, whose answer comes in one piece or in many. Raises SATURATED."""
        self._note_overdue()
        is_calm = self.gate.running < self.gate.limit / 2
        visit = Visit(self, self.gate.enter(key_id), prompt_tokens, is_whole=is_whole, is_calm=is_calm)
        normal_s = None if is_whole else self._normal.time_s(visit.size())
        if self._signal is not None and normal_s is not None:
            self._waiting[visit] = normal_s
        return visit

    def begun(self, visit: "Visit", first: Piece) -> None:
        if self._signal is None:
            return
        is_noted = visit in self._overdue
        self.gone(visit)
        took_s = self._clock.elapsed_s() - visit.place.entered_s
        size = visit.size(first)
        normal_s = self._normal.time_s(size)
        self._normal.note(size, took_s, is_calm=visit.is_calm)
        if normal_s is not None and not is_noted:
            self._signal.note((took_s - normal_s) / max(normal_s, self._tolerated_s), visit.place.entered_s)

    def gone(self, visit: "Visit") -> None:
        self._waiting.pop(visit, None)
        self._overdue.discard(visit)

    def _note_overdue(self) -> None:
        if self._signal is None:
            return
        now_s = self._clock.elapsed_s()
        while self._waiting:
            visit, normal_s = next(iter(self._waiting.items()))
            if now_s - visit.place.entered_s < normal_s + OVERDUE * max(normal_s, self._tolerated_s):
                return
            del self._waiting[visit]
            self._overdue.add(visit)
            self._signal.note(OVERDUE, visit.place.entered_s)


class Visit:
    """One chat at one model, from when it may be asked until its answer is over."""

    __slots__ = ("_prompt_tokens", "_saturation", "is_calm", "is_whole", "place")

    def __init__(
        self, saturation: Saturation, place: Place, prompt_tokens: int, *, is_whole: bool, is_calm: bool
    ) -> None:
        self._saturation = saturation
        self.place = place
        self._prompt_tokens = prompt_tokens
        self.is_whole = is_whole
        # When it came there was so little to do that it cannot have queued behind us.
        self.is_calm = is_calm

    def begun(self, first: Piece) -> None:
        self._saturation.begun(self, first)

    def turned_away(self, retry_after_s: float | None) -> LegatoError:
        """The provider said that it is full. Gives what the client may be told."""
        return self._saturation.gate.turned_away(self.place.entered_s, retry_after_s)

    def leave(self) -> None:
        self._saturation.gone(self)
        self.place.leave()

    def size(self, first: Piece | None = None) -> Size:
        """By which it is compared with others: a prompt takes its time until the answer begins, and an answer in one
        piece takes more until it ends."""
        answer_bits = _answer_tokens(first).bit_length() if self.is_whole else IN_PIECES
        return self._prompt_tokens.bit_length(), answer_bits

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.leave()


class Normal:
    """How long work of each size takes when nothing queues: the lowest quarter of its samples, as in a `Signal`, so
    that the two can be compared. Lower times are believed at once. Higher ones slowly, and only where they were
    measured while there was little to do: else a queue that is always there would become normal by and by."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[Size, _Time] = {}

    def time_s(self, size: Size) -> float | None:
        return self._times[size].normal_s if size in self._times else None

    def note(self, size: Size, took_s: float, *, is_calm: bool) -> None:
        time = self._times.setdefault(size, _Time())
        time.samples_s.append(took_s)
        if len(time.samples_s) < LEAST_SAMPLES:
            return
        now_s = self._clock.elapsed_s()
        low_s = lowest_quarter(time.samples_s)
        if time.normal_s is None:
            # There are many sizes: of some, the first samples come from a queue that others have measured already.
            time.normal_s = min(low_s, self._least_of_larger_s(size))
        elif low_s < time.normal_s:
            time.normal_s = low_s
        elif is_calm:
            time.normal_s = min(low_s, time.normal_s * 2 ** ((now_s - time.known_at_s) / DOUBLED_WITHIN_S))
        time.known_at_s = now_s
        time.samples_s.clear()

    def forget(self) -> None:
        self._times.clear()

    def _least_of_larger_s(self, size: Size) -> float:
        """Less work takes no longer than more."""
        return min(
            (
                time.normal_s
                for (prompt_bits, answer_bits), time in self._times.items()
                if time.normal_s is not None and prompt_bits >= size[0] and answer_bits >= size[1]
            ),
            default=math.inf,
        )


@dataclass(slots=True)
class _Time:
    normal_s: float | None = None
    known_at_s: float = 0.0
    # Since then.
    samples_s: list[float] = field(default_factory=list)


def _answer_tokens(answer: Piece | None) -> int:
    if answer is None:
        return 0
    if answer.usage is not None and answer.usage.completion_tokens:
        return answer.usage.completion_tokens
    return (len("".join(answer.contents)) + len(answer.hidden)) // CHARACTERS_PER_TOKEN
