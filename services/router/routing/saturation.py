"""How busy a model is: by what its server says, a constant, and where the routes ask for it by how long it lets a chat
wait for the first piece of its answer.

How long that takes depends on what is asked, and a model that thinks is silent meanwhile. So a longer time alone is no
evidence of a queue, and is taken for one only where the routes say so: for a server that queues and says nothing of it.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from services.chassis.errors import LegatoError
from services.chassis.load.admission import NO_LIMIT, Gate, Permit
from services.chassis.load.queueing import LEAST_SAMPLES, QueueingSignal, low_sample
from services.chassis.timing.clock import Clock
from services.router.providers.base import Piece
from services.router.routing.backoff import LONGEST_S, Backoff
from services.router.routing.queue_watch import QueueWatch

# Beside which the time that is normal for a model is tolerated once more: sizes that are taken for the same differ by
# a factor of two.
QUEUEING_TOLERATED_S: Final = 0.5
# One that waits for so many times what is tolerated is taken for slow before it is answered.
OVERDUE: Final = 1.25
# In a queue everybody waits. Where half of the chats think, so many are late in a row once in hours.
LATE_SAMPLES: Final = 16
IN_TIME_SHARE: Final = 1 / 16
# In a queue nobody is overtaken. Where this share of those that are late is, they think.
THINKING_SHARE: Final = 0.5
# Below this, what is slow is not slow because of us.
LEAST_CHATS: Final = 8
# A time that has become normal may be twice as long only after this.
DOUBLED_WITHIN_S: Final = 300.0
# Where the provider does not count.
CHARACTERS_PER_TOKEN: Final = 4

# Of a prompt and of its answer, in tokens, each rounded to a power of two, so that there are some hundreds at most.
Size = tuple[int, int]
# In place of the size of an answer of which only the beginning counts.
IN_PIECES: Final = -1


class ModelSaturation:
    """Of one model."""

    def __init__(self, clock: Clock, tolerated_s: float = 0.0, concurrency: int | None = None) -> None:
        """Where no time is tolerated, none is measured: then only a constant, and what its server says, limit it."""
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._normal = Normal(clock)
        self.backoff = Backoff(clock)
        # What is slow however little runs is not slow because of us: then that is normal now.
        self.gate = Gate(
            "The model",
            clock,
            least=LEAST_CHATS,
            most=concurrency or NO_LIMIT,
            on_false_alarm=self._normal.forget,
            count_waiting=lambda: len(self._overdue),
        )
        self._signal = (
            QueueingSignal(self.gate, clock, tolerated_s, share=IN_TIME_SHARE, least_samples=LATE_SAMPLES)
            if tolerated_s
            else None
        )
        # Looks at its queue, where the server publishes that.
        self.queue_watch: QueueWatch | None = None
        # How many are being answered.
        self._answering = 0
        # Those that were asked and have not begun, the oldest first, if it is known how long that should take.
        self._waiting: dict[ModelUse, float] = {}
        # Those that have waited for too long already, and were counted for it, in that order.
        self._overdue: dict[ModelUse, None] = {}
        # Of the last of those: whether others that came later began before them.
        self._were_overtaken: deque[bool] = deque(maxlen=LATE_SAMPLES)

    def enter(self, key_id: str, prompt_tokens: int, *, is_whole: bool = False) -> "ModelUse":
        """For one chat, whose answer comes in one piece or in many. Raises SATURATED."""
        self._note_overdue()
        running = self.gate.running
        if not self.backoff.has_room(running):
            # There may be room as soon as the probe is answered.
            raise self.gate.refuse(latest_s=self.backoff.left_s)
        place = self.gate.acquire(key_id)
        if self.queue_watch is not None:
            self.queue_watch.wake()
        probe_id = self.backoff.send(running)
        model_use = ModelUse(self, place, probe_id, prompt_tokens, is_whole=is_whole, is_calm=running < LEAST_CHATS)
        normal_s = None if is_whole else self._normal.time_s(model_use.size())
        if self._signal is not None and normal_s is not None:
            self._waiting[model_use] = normal_s
        return model_use

    def begun(self, model_use: "ModelUse", first: Piece) -> None:
        self._answering += 1
        self.backoff.accepted(model_use.probe_id)
        if self._signal is None:
            return
        if model_use in self._overdue:
            self._were_overtaken.append(False)
        self._begun_or_gone(model_use)
        self._note_overtaken(self._signal, model_use.place.entered_s)
        took_s = self._clock.elapsed_s() - model_use.place.entered_s
        size = model_use.size(first)
        normal_s = self._normal.time_s(size)
        self._normal.note(size, took_s, is_calm=model_use.is_calm)
        if normal_s is not None and not model_use.was_late:
            pressure = (took_s - normal_s) / max(normal_s, self._tolerated_s)
            self._signal.note(pressure, model_use.place.entered_s, model_use.place.key_id)

    def gone(self, model_use: "ModelUse") -> None:
        self.backoff.over(model_use.probe_id)
        self._answering -= model_use.has_begun
        self._begun_or_gone(model_use)

    def turned_away(self, retry_after_s: float | None) -> LegatoError:
        """The server said that it is full, to one that has left. Gives what the client may be told."""
        if retry_after_s is None:
            return self.gate.refuse()
        self.backoff.refused(retry_after_s, self.gate.running)
        return self.gate.refuse(min(retry_after_s, LONGEST_S))

    @property
    def is_answering(self) -> bool:
        return self._answering > 0

    def _begun_or_gone(self, model_use: "ModelUse") -> None:
        self._waiting.pop(model_use, None)
        self._overdue.pop(model_use, None)

    def _note_overtaken(self, signal: QueueingSignal, entered_s: float) -> None:
        """Those that came well before one that has begun now are not in a queue with it: they think."""
        while self._overdue:
            model_use = next(iter(self._overdue))
            if model_use.place.entered_s + self._tolerated_s / 2 > entered_s:
                return
            del self._overdue[model_use]
            signal.withdraw(OVERDUE)
            self._were_overtaken.append(True)
            if self._late_ones_think:
                self.gate.lift()

    @property
    def _late_ones_think(self) -> bool:
        known = self._were_overtaken
        return len(known) >= LEAST_SAMPLES and sum(known) >= THINKING_SHARE * len(known)

    def _note_overdue(self) -> None:
        if self._signal is None:
            return
        now_s = self._clock.elapsed_s()
        while self._waiting:
            model_use, normal_s = next(iter(self._waiting.items()))
            if now_s - model_use.place.entered_s < normal_s + OVERDUE * max(normal_s, self._tolerated_s):
                return
            del self._waiting[model_use]
            self._overdue[model_use] = None
            model_use.was_late = True
            if not self._late_ones_think:
                self._signal.note(OVERDUE, model_use.place.entered_s, model_use.place.key_id)


class ModelUse:
    """One chat at one model, from when it may be asked until its answer is over."""

    __slots__ = (
        "_has_left",
        "_prompt_tokens",
        "_saturation",
        "has_begun",
        "is_calm",
        "is_whole",
        "place",
        "probe_id",
        "was_late",
    )

    def __init__(
        self,
        saturation: ModelSaturation,
        place: Permit,
        probe_id: int | None,
        prompt_tokens: int,
        *,
        is_whole: bool,
        is_calm: bool,
    ) -> None:
        self._saturation = saturation
        self.place = place
        # Where it is the one chat that tries a server which asked to be left alone.
        self.probe_id = probe_id
        self._prompt_tokens = prompt_tokens
        self.is_whole = is_whole
        # When it came there was so little to do that it cannot have queued behind us.
        self.is_calm = is_calm
        # Whether that was counted before it began.
        self.was_late = False
        self.has_begun = False
        self._has_left = False

    def begun(self, first: Piece) -> None:
        self.has_begun = True
        self._saturation.begun(self, first)

    @property
    def are_others_answered(self) -> bool:
        """By the same server, at this moment."""
        return self._saturation.is_answering

    def release(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self.place.release()
        self._saturation.gone(self)

    def size(self, first: Piece | None = None) -> Size:
        """By which it is compared with others: a prompt takes its time until the answer begins, and an answer in one
        piece takes more until it ends."""
        answer_bits = _answer_tokens(first).bit_length() if self.is_whole else IN_PIECES
        return self._prompt_tokens.bit_length(), answer_bits

    def __enter__(self) -> "ModelUse":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


class Normal:
    """How long work of each size takes when nothing queues: the lowest quarter of its samples, as it is of
    most signals. Lower times are believed at once. Higher ones slowly, and only where they were
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
        low_s = low_sample(time.samples_s)
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
