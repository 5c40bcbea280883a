"""Limits concurrent chats per model: by what its server reports, by a constant, and, if the routes ask for it, by the
time to the first piece of its answers.

That time depends on the request, and a reasoning model is silent at first. So latency alone is no evidence of a queue,
and counts as such only if the routes say so: for a server that queues without reporting it.
"""

import asyncio
import contextlib
import math
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from services.chassis.errors import LegatoError
from services.chassis.load.admission import LEAST_SAMPLES, NO_LIMIT, Gate, Permit, QueueingSignal, low_sample
from services.chassis.timing.deadlines import Clock
from services.router.providers.base import Piece
from services.router.routing.backoff import ACCEPTED_AFTER_S, LONGEST_BACKOFF_S, ModelBackoff
from services.router.routing.learned_limit import LearnedLimit
from services.router.routing.model_share import RouterShare
from services.router.routing.queue_watch import QueueWatch

# A chat that waits this many times the tolerated delay counts as late before it is answered.
OVERDUE: Final = 1.25
# A queue delays every chat. If half of them are just reasoning, this many in a row are late once in hours.
LATE_SAMPLES: Final = 16
IN_TIME_SHARE: Final = 1 / 16
# No request overtakes another in a queue. If this share of the late chats is overtaken, they are reasoning.
THINKING_SHARE: Final = 0.5
# Below this concurrency, slowness is not caused by our load.
LEAST_CHATS: Final = 8
# The normal time may double at most once in this period.
DOUBLED_WITHIN_S: Final = 300.0
# Estimate for providers that report no usage.
CHARACTERS_PER_TOKEN: Final = 4

# Tokens of a prompt and of its answer, each rounded to a power of two, which bounds the number of sizes.
Size = tuple[int, int]
# Stands for the answer's size in a stream, whose first piece alone is timed.
IN_PIECES: Final = -1


class ModelSaturation:
    """The concurrency control of one model."""

    def __init__(self, clock: Clock, tolerated_s: float = 0.0, concurrency: int | None = None) -> None:
        """`tolerated_s` is tolerated on top of the normal time, or the normal time once more if that is longer, since
        sizes in one bucket differ by a factor of two. 0 disables latency measurement: only the constant and the
        server's reports limit it."""
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._normal = Normal(clock)
        self.backoff = ModelBackoff(clock)
        # What the server's refusals tell of its places.
        self._learned = LearnedLimit(clock)
        self._refused = 0
        # If the model is slow even at low load, the slowness is not ours: the normal times are learned again.
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
        # What this router may use of `concurrency`, if that is given.
        self.share: RouterShare | None = None
        # Polls the server's queue if it is published.
        self.queue_watch: QueueWatch | None = None
        # Of chats that wait until a probe of the backoff is accepted, refused or over.
        self._awaited_outcomes: list[asyncio.Future[None]] = []
        # Number of answers in progress.
        self.answering = 0
        # Chats without a first piece yet, oldest first, with their normal time if it is known.
        self._waiting: dict[ModelUse, float] = {}
        # Chats already counted as late, in that order.
        self._overdue: dict[ModelUse, None] = {}
        # For recent late chats: whether a later chat began before them.
        self._were_overtaken: deque[bool] = deque(maxlen=LATE_SAMPLES)

    def limit_by(self, share: RouterShare) -> None:
        """Makes the share the limit."""
        self.share = share
        self.gate.count_places = self._count_places

    def _count_places(self) -> int:
        places = self.gate.most if self.share is None else self.share.places_of(self.gate)
        return int(min(places, self._learned.places))

    def has_room_for(self, key_id: str) -> bool:
        """Tells if another chat of the key may enter, now or when the share has grown."""
        return self.gate.has_room_for(key_id) or (self.share is not None and self.share.may_grow)

    async def admit(self, key_id: str, prompt_tokens: int, *, is_whole: bool = False) -> "ModelUse":
        """Admits one chat, like `enter`, but waits before for the outcome of the probes of a backoff if no more may be
        sent, and for a larger share if the present one is used up, and may grow."""
        if self.backoff.is_on:
            await self._wait_for_probes(key_id)
        if self.share is not None:
            has_room = partial(self.gate.has_room_for, key_id)
            if not has_room() and self.share.may_grow:
                await self.share.wait(has_room)
        return self.enter(key_id, prompt_tokens, is_whole=is_whole)

    async def _wait_for_probes(self, key_id: str) -> None:
        """Returns when a probe of the key's backoff was accepted, or may have been, or when there is room for one.
        Raises SATURATED when one is refused."""
        if self._may_probe(key_id):
            return
        refusals = self.backoff.refusals(key_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACCEPTED_AFTER_S):
                while not self._may_probe(key_id) and self.backoff.refusals(key_id) <= refusals:
                    outcome = asyncio.get_running_loop().create_future()
                    self._awaited_outcomes.append(outcome)
                    await outcome
        if self.backoff.refusals(key_id) > refusals:
            raise self.gate.refuse(latest_s=self.backoff.left_s(key_id))

    def _may_probe(self, key_id: str) -> bool:
        running_of_key = self.gate.running_by_key.get(key_id, 0)
        return self.backoff.has_room(key_id, self.gate.running, running_of_key)

    def _report_outcome(self) -> None:
        """Wakes the chats that wait for the outcome of a probe."""
        awaited, self._awaited_outcomes = self._awaited_outcomes, []
        for outcome in awaited:
            if not outcome.done():
                outcome.set_result(None)

    def enter(self, key_id: str, prompt_tokens: int, *, is_whole: bool = False) -> "ModelUse":
        """Admits one chat; `is_whole` means that it does not stream. Raises SATURATED."""
        self._note_overdue()
        running, running_of_key = self.gate.running, self.gate.running_by_key.get(key_id, 0)
        if not self.backoff.has_room(key_id, running, running_of_key):
            raise self.gate.refuse(latest_s=self.backoff.left_s(key_id))
        try:
            place = self.gate.acquire(key_id)
        except LegatoError:
            if self.share is not None:
                self.share.note(self.gate, refused=1)
            raise
        if self.share is not None:
            self.share.note(self.gate)
        if self.queue_watch is not None:
            self.queue_watch.wake()
        probe = self.backoff.send(key_id, running, running_of_key)
        model_use = ModelUse(self, place, probe, prompt_tokens, is_whole, running, self._refused)
        normal_s = None if is_whole else self._normal.time_s(model_use.size())
        if self._signal is not None and normal_s is not None:
            self._waiting[model_use] = normal_s
        return model_use

    def begun(self, model_use: "ModelUse", first: Piece) -> None:
        self.answering += 1
        self.backoff.accepted(model_use.place.key_id)
        # Some of those that ran when it was sent may have been refused since.
        self._report_outcome()
        self._learned.accepted(min(model_use.beside, self.gate.running - 1))
        if self._signal is None:
            return
        if model_use in self._overdue:
            self._were_overtaken.append(False)
        self._begun_or_gone(model_use)
        self._note_overtaken(self._signal, model_use.place.entered_s)
        took_s = self._clock.elapsed_s() - model_use.place.entered_s
        size = model_use.size(first)
        normal_s = self._normal.time_s(size)
        self._normal.note(size, took_s, is_calm=model_use.beside < LEAST_CHATS)
        if normal_s is not None and not model_use.was_late:
            pressure = (took_s - normal_s) / max(normal_s, self._tolerated_s)
            self._signal.note(pressure, model_use.place.entered_s, model_use.place.key_id)

    def gone(self, model_use: "ModelUse") -> None:
        if model_use.probe is not None:
            self.backoff.over(model_use.place.key_id, model_use.probe)
            self._report_outcome()
        self.answering -= model_use.has_begun
        self._begun_or_gone(model_use)

    def turned_away(self, retry_after_s: float | None, model_use: "ModelUse", account_id: str) -> LegatoError:
        """Records that the server refused a chat as full, which has left. Returns the error for the client."""
        key_id = model_use.place.key_id
        running, running_of_key = self.gate.running, self.gate.running_by_key.get(key_id, 0)
        # Some of those that it was sent beside have ended since, and some have been refused.
        beside = max(running, model_use.beside - (self._refused - model_use.refused_before))
        self._refused += 1
        self._learned.refused(beside, running_of_key, len(self.gate.running_by_key))
        if self._learned.is_known:
            self.gate.count_places = self._count_places
        if retry_after_s is None:
            refusal = self.gate.refuse()
        else:
            self.backoff.refused(retry_after_s, key_id, account_id, running, running_of_key)
            refusal = self.gate.refuse(min(retry_after_s, LONGEST_BACKOFF_S))
        self._report_outcome()
        return refusal

    def _begun_or_gone(self, model_use: "ModelUse") -> None:
        self._waiting.pop(model_use, None)
        self._overdue.pop(model_use, None)

    def _note_overtaken(self, signal: QueueingSignal, entered_s: float) -> None:
        """Clears late chats that a clearly newer one has overtaken: they are reasoning, not queued."""
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


@dataclass(slots=True, eq=False, repr=False)
class ModelUse:
    """One chat's use of a model, from admission to the end of its answer."""

    saturation: ModelSaturation
    place: Permit
    # Set if this chat is sent during a backoff, to find out whether it is over.
    probe: object | None
    prompt_tokens: int
    is_whole: bool
    # How many other chats ran when it was admitted.
    beside: int
    # How many the server had refused by then.
    refused_before: int
    # Whether it was counted as late before it began.
    was_late: bool = False
    has_begun: bool = False
    _has_left: bool = False

    def begun(self, first: Piece) -> None:
        self.has_begun = True
        self.saturation.begun(self, first)

    def release(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        self.place.release()
        self.saturation.gone(self)

    def size(self, first: Piece | None = None) -> Size:
        """Returns the size by which durations are compared: the first piece takes longer for a longer prompt, and a
        whole answer takes longer the longer it is."""
        answer_bits = _answer_tokens(first).bit_length() if self.is_whole else IN_PIECES
        return self.prompt_tokens.bit_length(), answer_bits


class Normal:
    """The normal duration per size without queueing: the lowest quartile of its samples. A lower value is adopted at
    once; a higher one slowly, and only from samples at low load, since otherwise a permanent queue would become normal
    over time."""

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
            # The first samples of a rare size may come from a queue that other sizes already reveal.
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
        """Returns the least normal time of larger sizes: less work takes no longer than more."""
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
    # Samples since `known_at_s`.
    samples_s: list[float] = field(default_factory=list)


def _answer_tokens(answer: Piece | None) -> int:
    if answer is None:
        return 0
    if answer.usage is not None and answer.usage.completion_tokens:
        return answer.usage.completion_tokens
    return (len("".join(answer.contents)) + len(answer.hidden)) // CHARACTERS_PER_TOKEN
