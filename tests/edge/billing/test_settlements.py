"""Settlements that metering does not acknowledge at once."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from edge.billing import settlements
from edge.billing.journal import Slot
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.router.v1.router_pb2 import ProviderCost, Started
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from tests.edge.metering_harness import ANN, MeteringHarness, cost
from tests.support.fakes import FakeClock
from tests.support.waiting import until

USAGE = Usage(prompt_tokens=90, completion_tokens=7)


async def test_settlement_waits_for_a_metering_that_is_away(metering_harness: MeteringHarness) -> None:
    await metering_harness.give(10**9)
    hold = metering_harness.hold()
    await hold.reserve(100, 10)
    await metering_harness.shut()
    hold.settle(USAGE, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    await asyncio.sleep(0.2)
    await metering_harness.open()
    async with asyncio.timeout(60):
        assert await metering_harness.balance() == (10**9 - cost(90, 7), 0)


async def test_settlement_that_metering_refuses_keeps_its_slot_and_is_logged_at_each_attempt(
    metering_harness: MeteringHarness, log_text: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens were served that no request reserved, which an operator has to look at."""
    monkeypatch.setattr(settlements, "REFUSED_AGAIN_AFTER_S", 0.05)
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id, "forte", "key_1")
    slot.seal(USAGE, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    first = settlement_of(slot)
    assert (first.class_id, first.key_id) == ("", "")
    metering_harness.metering.resolve(slot)
    await until(lambda: log_text().count("settlement.refused") >= 2)
    assert metering_harness.journal.taken == {slot.index: slot}
    # With what is needed to book it.
    again = settlement_of(slot)
    assert (again.class_id, again.key_id) == ("forte", "key_1")


def settlement_of(slot: Slot) -> pb.SettleRequest:
    request = settlements.resolution(slot)[1]
    assert isinstance(request, pb.SettleRequest)
    return request


async def test_settlement_tells_the_calls_and_of_an_answer_that_did_not_finish_what_was_delivered(
    metering_harness: MeteringHarness,
) -> None:
    """A cost that the routes do not state stays unknown, and an edge that restarted knows none of it."""
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id)
    slot.seal(USAGE, pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
    told: dict[str, pb.SettleRequest] = {}
    prices = ProviderCost(input_nanos=1_000_001, cached_input_nanos=1, output_nanos=2_000_000)
    for name, cost_of_model in (("known", prices), ("unknown", None)):
        slot.started = Started(provider="acme", model_name="large", cost=cost_of_model, routes_version="v1")
        told[name] = settlement_of(slot)
    call = ModelCall(provider="acme", model_name="large", usage=USAGE)
    assert list(told["unknown"].calls) == [call]
    # 90 tokens for a little more than a nano, and 7 for two.
    call.cost_nanos = 91 + 14
    assert (list(told["known"].calls), told["known"].routes_version) == ([call], "v1")
    slot.calls = [ModelCall(provider="blau"), ModelCall(provider="acme")]
    assert list(settlement_of(slot).calls) == slot.calls
    slot.calls, slot.started = (), None
    assert not settlement_of(slot).calls


async def test_settlement_tells_the_times_as_they_were_when_it_began_and_of_a_crashed_edge_none(
    metering_harness: MeteringHarness,
) -> None:
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id)
    slot.seal(USAGE, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    untimed = settlement_of(slot)
    assert {"duration_ms", "first_token_ms"}.isdisjoint(field.name for field, _ in untimed.ListFields())
    clock = FakeClock()
    pending = settlements.Settlements(metering_harness.replicas, clock, cast(Any, None))
    slot.arrived_at_s = clock.elapsed_s()
    clock.advance(0.25)
    slot.first_token_at_s = clock.elapsed_s()
    clock.advance(2)
    for _ in range(2):
        pending.begin(slot)
        timed = settlement_of(slot)
        assert (timed.first_token_ms, timed.duration_ms) == (250, 2_250)
        clock.advance(30)
    slot.basis = pb.BASIS_UNSPECIFIED
    assert settlements.resolution(slot)[1] == pb.VoidRequest(
        request_id=slot.request_id, account_id=slot.account_id, end=slot.end, lost=USAGE, duration_ms=2_250
    )
