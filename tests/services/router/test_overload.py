"""A model of limited capacity under more load than it can bear, played event by event on a clock of its own."""

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from services.chassis.errors import LegatoError
from services.router.providers.base import Piece, ProviderUsage
from services.router.routing.saturation import ModelSaturation, ModelUse
from tests.support.fakes import FakeClock

QUEUEING_TOLERATED_S = 0.5
SLOTS = 24
FIRST_S = 0.1
ANSWER_S = 0.4
CAPACITY_PER_S = SLOTS / ANSWER_S
FIRST = Piece(contents=["Hello"])
PLAY_S = 120.0
# Until the first queue has been measured and is gone.
LEARNT_S = 30.0


@dataclass
class Chat:
    key_id: str
    asked_at_s: float
    model_use: ModelUse
    whole: "Whole | None" = None


class Whole:
    """Chats of all sizes, whose answers come in one piece: prompts of 64 to 8,192 tokens, answers of 8 to 1,024."""

    # Of the sizes that are told from each other, each comes as often as the others.
    MEAN_S = 0.05 + 1_675 * 0.00005 + 209 * 0.002

    def __init__(self, dice: random.Random) -> None:
        self.prompt_tokens = int(2 ** dice.uniform(6, 13))
        self._answer_tokens = int(2 ** dice.uniform(3, 10))
        self.answer_s = 0.05 + self.prompt_tokens * 0.00005 + self._answer_tokens * 0.002

    @property
    def piece(self) -> Piece:
        return Piece(usage=ProviderUsage(self.prompt_tokens, self._answer_tokens, None), last=True)


@dataclass
class Played:
    """Since the beginning was over."""

    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    @property
    def goodput_per_s(self) -> float:
        return self.done.total() / (PLAY_S - LEARNT_S)

    def served_share(self, key_id: str) -> float:
        return self.done[key_id] / (self.done[key_id] + self.refused[key_id])

    @property
    def wait_median_s(self) -> float:
        return sorted(self.waits_s)[len(self.waits_s) // 2]

    @property
    def wait_p99_s(self) -> float:
        return sorted(self.waits_s)[len(self.waits_s) * 99 // 100]


class Play:
    """A chat without a slot waits until one is free; none gives up."""

    def __init__(
        self, tolerated_s: float = QUEUEING_TOLERATED_S, answer_s: float = ANSWER_S, *, are_whole: bool = False
    ) -> None:
        self._are_whole = are_whole
        self._answer_s = answer_s
        self._clock = FakeClock()
        self._saturation = ModelSaturation(self._clock, tolerated_s)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._waiting: deque[Chat] = deque()
        self._free = SLOTS
        self._dice = random.Random(1)
        self.played = Played()

    def run(self, chats_per_s: dict[str, float]) -> Played:
        for key_id, rate in chats_per_s.items():
            self._arrive_later(key_id, rate)
        while self._events and self._events[0][0] < PLAY_S:
            at_s, _, happen = heapq.heappop(self._events)
            self._clock.advance(at_s - self._clock.elapsed_s())
            happen()
        return self.played

    def _after(self, delay_s: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._clock.elapsed_s() + delay_s, next(self._numbers), happen))

    def _arrive_later(self, key_id: str, rate: float) -> None:
        self._after(self._dice.expovariate(rate), lambda: self._arrive(key_id, rate))

    def _arrive(self, key_id: str, rate: float) -> None:
        self._arrive_later(key_id, rate)
        whole = Whole(self._dice) if self._are_whole else None
        prompt_tokens = whole.prompt_tokens if whole is not None else 100
        try:
            model_use = self._saturation.enter(key_id, prompt_tokens, is_whole=self._are_whole)
        except LegatoError:
            self.played.refused[key_id] += self._is_counted
            return
        self._waiting.append(Chat(key_id, self._clock.elapsed_s(), model_use, whole))
        self._fill_slots()

    def _fill_slots(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            chat = self._waiting.popleft()
            self.played.waits_s.extend([self._clock.elapsed_s() - chat.asked_at_s] * self._is_counted)
            if chat.whole is not None:
                self._after(chat.whole.answer_s, partial(self._end_whole, chat, chat.whole.piece))
                continue
            self._after(FIRST_S, partial(chat.model_use.begun, FIRST))
            self._after(self._answer_s * self._dice.uniform(0.5, 1.5), partial(self._end, chat))

    def _end_whole(self, chat: Chat, answer: Piece) -> None:
        chat.model_use.begun(answer)
        self._end(chat)

    def _end(self, chat: Chat) -> None:
        chat.model_use.release()
        self._free += 1
        self.played.done[chat.key_id] += self._is_counted
        self._fill_slots()

    @property
    def _is_counted(self) -> bool:
        return self._clock.elapsed_s() >= LEARNT_S


@pytest.mark.parametrize("multiple", [1.5, 10.0])
def test_goodput_stays_and_waiting_is_bounded_under_overload(multiple: float) -> None:
    played = Play().run({"key": multiple * CAPACITY_PER_S})
    assert played.goodput_per_s > 0.95 * CAPACITY_PER_S
    assert played.wait_p99_s < 6 * QUEUEING_TOLERATED_S


def test_goodput_stays_where_answers_take_long() -> None:
    """Few come and go then, so that one place too many makes a long queue, and one too few is missed for long."""
    played = Play(answer_s=10.0).run({"key": 3 * SLOTS / 10.0})
    assert played.goodput_per_s > 0.95 * SLOTS / 10.0
    assert played.wait_p99_s < 10.0


def test_overload_from_the_first_moment_does_not_become_usual_where_answers_of_all_sizes_come_whole() -> None:
    """Each of them is known only after some samples, most of which have queued already."""
    capacity_per_s = SLOTS / Whole.MEAN_S
    played = Play(are_whole=True).run({"key": 3 * capacity_per_s})
    assert played.goodput_per_s > 0.95 * capacity_per_s
    assert played.wait_p99_s < 30.0


def test_no_chat_is_refused_below_the_capacity() -> None:
    played = Play().run({"key": 0.8 * CAPACITY_PER_S})
    assert not played.refused


def test_without_the_gate_waiting_has_no_bound() -> None:
    """Shows that the play can tell."""
    assert Play(tolerated_s=0).run({"key": 3 * CAPACITY_PER_S}).wait_p99_s > 10


def test_polite_keys_are_served_beside_a_greedy_one() -> None:
    polite = {f"polite {number}": 0.03 * CAPACITY_PER_S for number in range(10)}
    played = Play().run({"greedy": 2.7 * CAPACITY_PER_S, **polite})
    assert all(played.served_share(key_id) > 0.95 for key_id in polite)
    # And the greedy one has what they leave.
    assert played.goodput_per_s > 0.9 * CAPACITY_PER_S
