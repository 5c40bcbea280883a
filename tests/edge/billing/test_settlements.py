"""Settlements that metering does not acknowledge at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from edge.billing import settlements
from edge.billing.journal import Slot
from edge.billing.settlements import NO_DETAILS, ChatDetails
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.router.v1.router_pb2 import ProviderCost, Started
from legato_protos.type.v1.model_call_pb2 import ModelCall
from legato_protos.type.v1.usage_pb2 import Usage
from tests.edge.metering_harness import ANN, MeteringHarness, cost
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
    asked: list[pb.SettleRequest] = []
    resolution = settlements.resolution

    def kept(*given: Any, **named: Any) -> Any:
        call = resolution(*given, **named)
        asked.append(call[1])  # type: ignore[arg-type]
        return call

    monkeypatch.setattr(settlements, "resolution", kept)
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id, "forte")
    slot.seal(USAGE, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    metering_harness.metering.resolve(slot, ChatDetails(key_id="key_1", duration_ms=5))
    await until(lambda: log_text().count("settlement.refused") >= 2)
    assert metering_harness.journal.taken == {slot.index: slot}
    # Again with what is needed to book it.
    await until(lambda: asked[-1].key_id)
    told = [(each.class_id, each.key_id, each.duration_ms) for each in (asked[0], asked[-1])]
    assert told == [("", "", 5), ("forte", "key_1", 5)]


def settlement_of(slot: Slot, details: ChatDetails) -> pb.SettleRequest:
    request = settlements.resolution(slot, details)[1]
    assert isinstance(request, pb.SettleRequest)
    return request


async def test_settlement_tells_the_calls_and_of_an_answer_that_did_not_finish_what_was_delivered(
    metering_harness: MeteringHarness,
) -> None:
    """A cost that the routes do not state stays unknown, and an edge that restarted knows none of it."""
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id)
    slot.seal(USAGE, pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
    told: dict[str, pb.SettleRequest] = {}
    started = Started()
    prices = ProviderCost(input_nanos=1_000_001, cached_input_nanos=1, output_nanos=2_000_000)
    for name, cost_of_model in (("known", prices), ("unknown", None)):
        started = Started(provider="acme", model_name="large", cost=cost_of_model, routes_version="v1")
        told[name] = settlement_of(slot, ChatDetails(started=started))
    call = ModelCall(provider="acme", model_name="large", usage=USAGE)
    assert list(told["unknown"].calls) == [call]
    # 90 tokens for a little more than a nano, and 7 for two.
    call.cost_nanos = 91 + 14
    assert (list(told["known"].calls), told["known"].routes_version) == ([call], "v1")
    calls = [ModelCall(provider="blau"), ModelCall(provider="acme")]
    assert list(settlement_of(slot, ChatDetails(started=started, calls=calls)).calls) == calls
    assert not settlement_of(slot, NO_DETAILS).calls


async def test_settlement_tells_the_times_and_of_a_crashed_edge_none(metering_harness: MeteringHarness) -> None:
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id)
    slot.seal(USAGE, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    untimed = settlement_of(slot, NO_DETAILS)
    assert {"duration_ms", "first_token_ms"}.isdisjoint(field.name for field, _ in untimed.ListFields())
    details = ChatDetails(first_token_ms=250, duration_ms=2_250)
    timed = settlement_of(slot, details)
    assert (timed.first_token_ms, timed.duration_ms) == (250, 2_250)
    slot.basis = pb.BASIS_UNSPECIFIED
    assert settlements.resolution(slot, details)[1] == pb.VoidRequest(
        request_id=slot.request_id, account_id=slot.account_id, end=slot.end, lost=USAGE, duration_ms=2_250
    )


async def test_settlement_has_the_parts_of_usage_that_the_journal_has_no_room_for_unless_the_edge_restarted(
    metering_harness: MeteringHarness,
) -> None:
    """They change no charge."""
    used = Usage(prompt_tokens=90, cached_tokens=9, completion_tokens=7, cache_write_tokens=5, reasoning_tokens=3)
    slot = metering_harness.journal.claim(f"{1:032x}", ANN.account_id)
    slot.seal(used, pb.BASIS_PROVIDER, pb.END_COMPLETE)
    assert settlement_of(slot, ChatDetails(usage=used)).usage == used
    kept = Usage(prompt_tokens=90, cached_tokens=9, completion_tokens=7)
    assert settlement_of(slot, NO_DETAILS).usage == kept
