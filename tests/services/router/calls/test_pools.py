"""Pools: how the members of a tier share chats, and who takes those of a member that cannot."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.router.calls.candidates import in_turn
from services.router.models.circuit_breaker import (
    FAILURES_IN_A_ROW,
    SLOW_LATENCIES,
    SLOW_LEAST_S,
    Attempt,
    CircuitBreaker,
)
from services.router.models.recent_health import RecentHealth
from services.router.models.saturation import ModelSaturation, ModelUse
from services.router.models.states import ClassModels, ModelState, WeightedModel
from services.router.prompts.conversation import digest_conversation
from services.router.providers.base import Provider
from services.router.routes.class_route import ClassRoute
from tests.services.router.harness import Router, as_json, in_tiers, refusal_of, running_router, target
from tests.support.fakes import FakeClock
from tests.support.upstreams.openai import Reply, Upstream

CHATS = 10_000
WEIGHTS = {"a": 50, "b": 30, "c": 20}
KEY = "key_1"
CONVERSATIONS = [digest_conversation(f"acct_{number}", ()) for number in range(CHATS)]


class Pool:
    """A class of tiers, without servers."""

    def __init__(self, clock: FakeClock, *tiers: dict[str, int], concurrency: int | None = None) -> None:
        self.members = {
            name: ModelState(
                replace(target(name), concurrency=concurrency),
                cast(Provider, None),
                ModelSaturation(clock, concurrency),
                CircuitBreaker(clock),
                RecentHealth(clock),
            )
            for tier in tiers
            for name in tier
        }
        weighted = tuple(tuple(WeightedModel(self.members[name], weight) for name, weight in t.items()) for t in tiers)
        self._models = ClassModels(ClassRoute(), weighted, tuple(self.members.values()))

    def order(self, conversation: bytes) -> list[str]:
        return [model_state.target.provider for model_state in in_turn(self._models, KEY, conversation)]

    def first(self, conversations: Iterable[bytes] = CONVERSATIONS) -> list[str]:
        """Returns the first candidate for each."""
        return [next(in_turn(self._models, KEY, each)).target.provider for each in conversations]

    def preferring(self, name: str) -> bytes:
        return next(each for each in CONVERSATIONS if self.first([each]) == [name])

    def load(self, name: str, chats: int) -> list[ModelUse]:
        return [self.members[name].saturation.enter(KEY) for _ in range(chats)]

    def break_down(self, name: str) -> None:
        for _ in range(FAILURES_IN_A_ROW):
            self.members[name].breaker.start_attempt().failed()


def shares(names: list[str]) -> dict[str, float]:
    return {name: count / len(names) for name, count in Counter(names).items()}


def by_weight(**weights: int) -> Any:
    return pytest.approx({name: weight / sum(weights.values()) for name, weight in weights.items()}, rel=0.03)


def test_members_share_chats_by_weight(clock: FakeClock) -> None:
    assert shares(Pool(clock, WEIGHTS).first()) == by_weight(**WEIGHTS)


def test_every_router_prefers_the_same_member_whatever_the_order_in_its_file(clock: FakeClock) -> None:
    turned = dict(reversed(WEIGHTS.items()))
    assert Pool(clock, turned).first() == Pool(clock, WEIGHTS).first()


def test_member_that_comes_takes_only_its_share_from_the_others(clock: FakeClock) -> None:
    before, after = Pool(clock, WEIGHTS).first(), Pool(clock, {**WEIGHTS, "d": 25}).first()
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {"d"}
    assert len(moved) == pytest.approx(CHATS * 25 / 125, rel=0.05)


def test_share_of_a_member_that_fails_moves_to_the_others_and_nothing_else_moves(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS, {"spare": 1})
    before = pool.first()
    pool.break_down("a")
    after = pool.first()
    assert shares(after) == by_weight(b=30, c=20)
    assert all(new == old for old, new in zip(before, after, strict=True) if old != "a")
    # It is tried last, after all tiers.
    order = pool.order(CONVERSATIONS[0])
    assert (order[-2:], len(order)) == (["spare", "a"], 4)


def test_full_member_spills_to_the_least_loaded_for_its_weight(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS, {"spare": 1}, concurrency=8)
    conversation = pool.preferring("a")
    # One key has its fair share of the places.
    running = pool.load("a", 8)
    pool.load("b", 4)
    pool.load("c", 3)
    # 4 / 30 is less than 3 / 20. The full one refuses before the next tier is asked: it may have room by then.
    assert pool.order(conversation) == ["b", "c", "a", "spare"]
    pool.load("b", 1)
    assert pool.order(conversation) == ["c", "b", "a", "spare"]
    running.pop().release()
    assert pool.order(conversation)[0] == "a"


def test_load_alone_moves_no_conversation(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS)
    conversation = pool.preferring("a")
    pool.load("a", 100)
    assert pool.order(conversation)[0] == "a"


def test_member_in_backoff_spills_for_the_key_that_was_refused(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS, {"spare": 1})
    conversation = pool.preferring("b")
    [refused] = pool.load("b", 1)
    refused.release()
    pool.members["b"].saturation.turned_away(10, refused, "acct_1")
    order = pool.order(conversation)
    assert (order[-2:], order.index("spare")) == (["spare", "b"], 2)
    clock.advance(10)
    assert pool.order(conversation)[0] == "b"


def test_member_that_is_slow_to_begin_spills_until_it_answers(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS, {"spare": 1})
    conversation, breaker = pool.preferring("c"), pool.members["c"].breaker
    usual = breaker.start_attempt()
    clock.advance(1)
    usual.begun()
    waiting = breaker.start_attempt()
    clock.advance(max(SLOW_LEAST_S, SLOW_LATENCIES) - 0.1)
    assert pool.order(conversation)[0] == "c"
    clock.advance(0.1)
    order = pool.order(conversation)
    assert (order[2], order[3]) == ("c", "spare")
    waiting.begun()
    assert pool.order(conversation)[0] == "c"


def serve(pool: Pool, clock: FakeClock, latencies_s: dict[str, float], chats: int) -> Counter[str]:
    """Sends new conversations, ten a second. Returns how many each member got."""
    waiting: list[tuple[float, Attempt]] = []
    served: Counter[str] = Counter()
    for conversation in CONVERSATIONS[:chats]:
        clock.advance(0.1)
        now_s = clock.elapsed_s()
        for begun in [each for each in waiting if each[0] <= now_s]:
            begun[1].begun()
            waiting.remove(begun)
        [name] = pool.first([conversation])
        served[name] += 1
        waiting.append((now_s + latencies_s[name], pool.members[name].breaker.start_attempt()))
    clock.advance(max(latencies_s.values()))
    for _, attempt in waiting:
        attempt.begun()
    return served


def test_member_that_is_far_slower_than_its_peers_gets_next_to_no_new_conversations(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS)
    served = serve(pool, clock, {"a": 0.05, "b": 0.05, "c": 15.0}, 3000)
    assert served["c"] < 0.03 * 3000
    # When it is as fast as the others, it has its share again.
    served = serve(pool, clock, dict.fromkeys(WEIGHTS, 0.05), 3000)
    assert served["c"] > 0.9 * 3000 * WEIGHTS["c"] / 100


def test_members_that_differ_as_models_do_keep_their_shares(clock: FakeClock) -> None:
    served = serve(Pool(clock, WEIGHTS), clock, {"a": 0.5, "b": 1.0, "c": 4.0}, 3000)
    assert {name: count / 3000 for name, count in served.items()} == pytest.approx(
        {name: weight / 100 for name, weight in WEIGHTS.items()}, rel=0.1
    )


def test_candidates_are_judged_when_they_are_needed(clock: FakeClock) -> None:
    pool = Pool(clock, WEIGHTS)
    conversation = pool.preferring("a")
    candidates = in_turn(pool._models, KEY, conversation)
    assert next(candidates).target.provider == "a"
    pool.break_down("b")
    assert [each.target.provider for each in candidates] == ["c", "b"]


class Served:
    """A router with members a, b and c in one tier and a spare in the next, each a server of its own."""

    def __init__(self, router: Router, upstreams: dict[str, Upstream]) -> None:
        self.router = router
        self.upstreams = upstreams

    async def ask(self, topic: str, turns: int = 1) -> list[str]:
        """Has one conversation. Returns who answered each turn."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"Tell me of {topic}."}]
        answered_by: list[str] = []
        for turn in range(turns):
            before = self._asked()
            answer = await self.router.ask(as_json(messages), account_id="acct_1")
            assert answer.text == "Hello, world!"
            assert answer.finished.finish_reason == "stop"
            answered_by += (self._asked() - before).elements()
            messages += ({"role": "assistant", "content": answer.text}, {"role": "user", "content": f"{turn}?"})
        return answered_by

    def _asked(self) -> Counter[str]:
        return Counter({name: len(upstream.requests) for name, upstream in self.upstreams.items()})


@pytest.fixture
async def served(request: pytest.FixtureRequest, socket_folder: Path, log: Log) -> AsyncIterator[Served]:
    """Its parameter is how many chats each server takes at once."""
    places = getattr(request, "param", None)
    targets = {name: replace(target(name), concurrency=places) for name in (*WEIGHTS, "spare")}
    route = in_tiers({targets[name]: weight for name, weight in WEIGHTS.items()}, {targets["spare"]: 1})
    async with AsyncExitStack() as stack:
        upstreams = {name: await stack.enter_async_context(Upstream()) for name in targets}
        by_target = {targets[name]: upstream for name, upstream in upstreams.items()}
        router = await stack.enter_async_context(running_router(socket_folder, log, by_target, route=route))
        yield Served(router, upstreams)


async def test_all_turns_of_a_conversation_meet_one_member(served: Served) -> None:
    answered_by = {topic: await served.ask(f"topic {topic}", turns=4) for topic in range(12)}
    assert all(len(set(members)) == 1 for members in answered_by.values())
    assert {members[0] for members in answered_by.values()} == set(WEIGHTS)


async def test_killed_member_costs_no_answer_and_the_others_take_its_chats(served: Served) -> None:
    topics = [f"topic {number}" for number in range(40)]
    before = {topic: (await served.ask(topic))[0] for topic in topics}
    killed = served.upstreams["a"]
    # It is killed while every chat of its share waits for a first word.
    killed.default_reply = Reply(delay_s=60)
    asked = len(killed.requests)
    waiting = [asyncio.create_task(served.ask(topic)) for topic in topics]
    await killed.received(2 * asked)
    await killed.kill()
    await asyncio.gather(*waiting)
    after = {topic: (await served.ask(topic))[0] for topic in topics}
    assert {after[topic] for topic, member in before.items() if member == "a"} == {"b", "c"}
    assert all(after[topic] == member for topic, member in before.items() if member != "a")
    assert not served.upstreams["spare"].requests


@pytest.mark.parametrize("served", [1], indirect=True)
async def test_full_member_spills_within_its_tier_and_then_to_the_next(served: Served) -> None:
    [preferred] = await served.ask("rivers")
    running = []
    try:
        answered_by = [preferred]
        for _ in range(3):
            # Takes the one place of the member that answered last.
            served.upstreams[answered_by[-1]].replies.append(Reply(stall_after=2))
            running.append(
                served.router.open(as_json([{"role": "user", "content": "Tell me of rivers."}]), account_id="acct_1")
            )
            assert await running[-1].receive()
            answered_by += await served.ask("rivers")
        assert (answered_by[-1], set(answered_by[:-1])) == ("spare", set(WEIGHTS))
        served.upstreams["spare"].replies.append(Reply(stall_after=2))
        running.append(served.router.open())
        assert await running[-1].receive()
        assert (await refusal_of(served.router)).reason is Reason.SATURATED
    finally:
        for chat in running:
            chat.cancel()
