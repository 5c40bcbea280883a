"""Routers' shares of a model's limit, with metering's rule behind them, on clocks that the tests move."""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import pytest

from legato_protos.metering.v1 import model_shares_pb2 as pb
from services.chassis.errors import LegatoError
from services.chassis.load.admission import Gate, Permit
from services.metering.limits.model_shares import KEPT_S, LEARNING_S, ModelShares, ShareClaim
from services.router.models.fleet_limits import LEASE_S
from services.router.models.share import CALLS_EVERY_S, RouterShare
from tests.support.fakes import FakeClock

LIMIT = 8
# With the lease, shorter than the places of a router that is cut off are kept.
LONGEST_CHAT_S = 4.0
ROUTERS = 3
FEW = 4


async def ask() -> None:
    raise AssertionError("tests call by themselves")


class Metering:
    """The store of one limit, which was started long ago."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.store = ModelShares(learning_since_s=clock.elapsed_s() - LEARNING_S, called_s=clock.elapsed_s())

    def renew(self, router_id: str, sequence: int, claim: pb.ShareClaim) -> tuple[int, bool]:
        reported = ShareClaim("host/model", claim.limit, claim.held, claim.wanted)
        [renewed] = self.store.renew(router_id, sequence, [reported], self._clock.elapsed_s())
        return renewed.places, renewed.is_contended

    @property
    def places(self) -> int:
        return sum(share.places for shares in self.store.shares.values() for share in shares.values())


@dataclass
class Router:
    """A router, and the calls that it has sent."""

    instance: str
    clock: FakeClock
    limit: int = LIMIT
    starts: Iterator[int] = field(default_factory=count)
    running: list[tuple[Permit, float]] = field(default_factory=list)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Starts it, after its predecessor was killed: providers close what that had opened."""
        self.running.clear()
        self.router_id = f"{self.instance} {next(self.starts)}"
        self.share = RouterShare("host/model", self.clock, ask)
        self.called_at_s = -math.inf
        self.reload(self.limit)

    def reload(self, limit: int) -> None:
        self.limit = limit
        self.gate = Gate("The model", self.clock, most=limit)
        self.share.use(limit, self.gate)
        gate, share = self.gate, self.share
        gate.limit_places(lambda: share.places_of(gate))

    def begin_chat(self) -> bool:
        try:
            permit = self.gate.acquire("key")
        except LegatoError:
            self.share.record(self.gate, refused=1)
            return False
        self.share.record(self.gate)
        self.running.append((permit, self.clock.elapsed_s()))
        return True

    def end_chats(self, longest_s: float) -> None:
        now_s = self.clock.elapsed_s()
        for permit, _ in [each for each in self.running if now_s - each[1] >= longest_s]:
            permit.release()
        self.running = [each for each in self.running if now_s - each[1] < longest_s]

    def send(self) -> "Call":
        self.sequence += 1
        self.called_at_s = self.clock.elapsed_s()
        return Call(self, self.router_id, self.sequence, self.share.claim())


@dataclass
class Call:
    router: Router
    router_id: str
    sequence: int
    # None: it has nothing to say, and is not sent.
    claim: pb.ShareClaim | None
    answer: tuple[int, bool] | None = None

    def __post_init__(self) -> None:
        self.sent_s = self.router.clock.elapsed_s()

    def arrive(self, metering: Metering) -> None:
        self.answer = None
        if self.claim is not None:
            with contextlib.suppress(LegatoError):
                self.answer = metering.renew(self.router_id, self.sequence, self.claim)

    def return_(self) -> None:
        """Delivers the answer, unless the router has given the call up."""
        router = self.router
        is_awaited = (self.router_id, self.sequence) == (router.router_id, router.sequence)
        if is_awaited and self.answer is not None:
            places, is_contended = self.answer
            router.share.renew(places, self.sent_s + LEASE_S, is_contended=is_contended)


class Fleet:
    """Calls and answers are delayed, lost, repeated and overtaken; routers are paused and killed; clocks differ."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.clocks = [FakeClock() for _ in range(ROUTERS + 1)]
        for number, clock in enumerate(self.clocks):
            clock.advance(1_000.0 * number)
        self.metering = Metering(self.clocks[-1])
        self.routers = [Router(f"host-{number}", self.clocks[number], FEW) for number in range(ROUTERS)]
        self.network: list[Call] = []
        self.most = 0

    def step(self) -> None:
        router = self.dice.choice(self.routers)
        acts: list[Callable[[Router], object]] = [
            *[self.chats_come] * 3,
            *[self.is_answered] * 2,
            *[self.comes_without_contact] * 2,
            lambda router: router.end_chats(self.dice.choice([0.0, 1.0, 10.0])),
            lambda router: self.network.append(router.send()),
            *[lambda router: self.time_passes(self.dice.choice([0.3, 2.0, 6.0, 30.0]))] * 2,
            Router.start,
            lambda router: router.reload(FEW),
            self.is_cut_off,
        ]
        if self.network:
            call = self.dice.choice(self.network[-4:])
            acts += [lambda router: call.arrive(self.metering), lambda router: call.return_()]
        self.dice.choice(acts)(router)

    def chats_come(self, router: Router) -> None:
        for _ in range(self.dice.randint(1, FEW)):
            if not router.begin_chat():
                self.is_answered(router)
                router.begin_chat()

    def comes_without_contact(self, router: Router) -> None:
        while router.begin_chat():
            pass

    def is_answered(self, router: Router) -> None:
        call = router.send()
        call.arrive(self.metering)
        call.return_()

    def is_cut_off(self, router: Router) -> None:
        """Lets the other routers go on, while the answer to this one's last call is late."""
        call = router.send()
        call.arrive(self.metering)
        for _ in range(10):
            self.time_passes(2.5)
            for other in self.routers:
                if other is not router:
                    self.chats_come(other)
            if self.dice.random() < 0.1:
                call.return_()
            if self.dice.random() < 0.1:
                self.comes_without_contact(router)
            self.check()

    def time_passes(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)
        for router in self.routers:
            router.end_chats(LONGEST_CHAT_S)

    def check(self) -> None:
        running = sum(len(router.running) for router in self.routers)
        self.most = max(self.most, running)
        assert running <= FEW
        assert sum(max(router.share.places, len(router.running)) for router in self.routers) <= FEW


def test_never_more_chats_run_than_the_limit_whatever_is_lost_late_repeated_or_killed() -> None:
    dice = random.Random(1)
    most = []
    for _ in range(60):
        fleet = Fleet(dice)
        for _ in range(80):
            fleet.step()
            fleet.check()
        most.append(fleet.most)
    # Chats do reach it.
    assert most.count(FEW) > 50


class Load:
    """More clients than places, each of which tries again a tenth of a second after it was refused."""

    def __init__(self, routers: int, limit: int, chat_s: float, one_router: bool) -> None:
        self.clock = FakeClock()
        self.metering = Metering(self.clock)
        self.routers = [Router(f"host-{number}", self.clock, limit) for number in range(routers)]
        self.limit = limit
        self.chat_s = chat_s
        self.targets = self.routers[:1] if one_router else self.routers
        self.retry_at_s = [0.0] * (3 * limit)
        self.dice = random.Random(7)
        self.ends: list[tuple[float, Permit]] = []
        self.most = 0

    def run(self, seconds: float) -> float:
        """Returns the mean share of the places that were in use."""
        used = ticks = 0
        ends_s = self.clock.elapsed_s() + seconds
        while self.clock.elapsed_s() < ends_s:
            self.clock.advance(0.02)
            self._tick(self.clock.elapsed_s())
            used += self.running
            ticks += 1
            self.most = max(self.most, self.running)
        return used / ticks / self.limit

    @property
    def running(self) -> int:
        return sum(len(router.running) for router in self.routers)

    def _tick(self, now_s: float) -> None:
        for router in self.routers:
            before = len(router.running)
            router.end_chats(self.chat_s)
            self.retry_at_s += [now_s] * (before - len(router.running))
            if now_s >= router.called_at_s + CALLS_EVERY_S:
                self._call(router)
        due = sum(at_s <= now_s for at_s in self.retry_at_s)
        self.retry_at_s = [at_s for at_s in self.retry_at_s if at_s > now_s]
        for _ in range(due if self.targets else 0):
            router = self.dice.choice(self.targets)
            if not router.begin_chat():
                if router.share.may_grow:
                    self._call(router)
                    if router.begin_chat():
                        continue
                self.retry_at_s.append(now_s + 0.1 * self.dice.random() + 0.05)

    def _call(self, router: Router) -> None:
        call = router.send()
        call.arrive(self.metering)
        call.return_()


@pytest.mark.parametrize("one_router", [False, True], ids=["everywhere", "at one router"])
@pytest.mark.parametrize("routers", [1, 2, 4])
@pytest.mark.parametrize(("limit", "chat_s"), [(8, 3.0), (3, 30.0)])
def test_nine_of_ten_places_are_used_and_never_more_than_all(
    routers: int, one_router: bool, limit: int, chat_s: float
) -> None:
    load = Load(routers, limit, chat_s, one_router)
    load.run(5)
    assert load.run(60) >= 0.9
    assert load.most == limit


def test_places_follow_the_chats_to_another_router() -> None:
    load = Load(2, LIMIT, 1.0, one_router=True)
    load.run(10)
    load.targets = load.routers[1:]
    load.run(5)
    assert (len(load.routers[0].running), load.run(20) >= 0.9) == (0, True)


def test_places_of_a_killed_router_come_back_after_ten_seconds() -> None:
    load = Load(2, LIMIT, 1.0, one_router=False)
    load.run(10)
    load.routers = load.targets = load.routers[1:]
    load.retry_at_s = [0.0] * 3 * LIMIT
    assert load.run(KEPT_S - 1) < 0.9
    load.run(2)
    assert load.run(20) >= 0.9


@pytest.mark.parametrize("changed", [4, 12])
def test_changed_limit_holds_for_new_chats_and_is_used(changed: int) -> None:
    load = Load(2, LIMIT, 2.0, one_router=False)
    load.run(10)
    # One router takes the new routes over first.
    load.routers[0].reload(changed)
    load.run(0.5)
    load.routers[1].reload(changed)
    load.run(3)
    load.limit, load.most = changed, 0
    assert load.run(30) >= 0.9
    assert load.most == changed


def test_routers_begin_no_chat_within_what_they_had_of_a_limit_that_was_lowered() -> None:
    clock = FakeClock()
    metering, routers = Metering(clock), [Router(f"host-{number}", clock) for number in range(2)]

    def ask(router: Router) -> Call:
        call = router.send()
        call.arrive(metering)
        return call

    for router in (*routers, *routers):
        router.begin_chat()
        ask(router).return_()
    for router in routers:
        assert router.begin_chat()
        router.end_chats(0)
    late = ask(routers[0])
    for router in routers:
        router.reload(1)
    assert [router.begin_chat() for router in routers] == [False, False]
    # Nor by the answer to a call of before.
    late.return_()
    assert not routers[0].begin_chat()
    for _ in range(4):
        for router in routers:
            ask(router).return_()
            router.begin_chat()
    assert sum(router.share.running for router in routers) == 1


def test_idle_router_returns_all_and_says_nothing_more() -> None:
    load = Load(2, LIMIT, 1.0, one_router=False)
    load.run(5)
    load.targets = []
    load.run(10)
    assert [router.share.claim() for router in load.routers] == [None, None]
    assert load.metering.places == 0
