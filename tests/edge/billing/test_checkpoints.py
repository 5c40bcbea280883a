"""What metering is told of running answers."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from edge.billing import metering as metering_module
from edge.billing.checkpoints import Checkpoints
from edge.billing.hold import ChatHold
from edge.billing.journal import Journal, Slot
from edge.billing.metering import Metering
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, unavailable
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.metering_harness import MeteringHarness


@pytest.fixture
def checkpoints(metering_harness: MeteringHarness, log: Log) -> Checkpoints:
    return Checkpoints(metering_harness.journal, metering_harness.metering, log)


async def run(harness: MeteringHarness, number: int) -> tuple[ChatHold, Slot]:
    """A request that has not delivered anything yet."""
    await harness.give(10**9, f"grant-{number}")
    hold = harness.hold(number)
    await hold.reserve(100, 10)
    [slot] = [slot for slot in harness.journal.taken.values() if slot.request_id == f"{number:032x}"]
    return hold, slot


async def told(harness: MeteringHarness, number: int) -> tuple[int, int]:
    hold = await harness.read_hold(number)
    return hold.prompt_tokens, hold.completion_tokens


async def test_what_was_delivered_is_told(metering_harness: MeteringHarness, checkpoints: Checkpoints) -> None:
    for number in (1, 2):
        _, slot = await run(metering_harness, number)
        slot.count(20, 3)
        slot.mark()
        slot.count(20, 3 + number)
    await checkpoints.report()
    assert [await told(metering_harness, number) for number in (1, 2)] == [(20, 4), (20, 5)]


async def test_first_piece_is_told_only_after_it_was_delivered(
    metering_harness: MeteringHarness, checkpoints: Checkpoints
) -> None:
    _, slot = await run(metering_harness, 1)
    slot.count(20, 3)
    await checkpoints.report()
    assert await told(metering_harness, 1) == (0, 0)
    slot.mark()
    await checkpoints.report()
    assert await told(metering_harness, 1) == (20, 3)


async def test_what_has_not_grown_is_not_told_again(
    metering_harness: MeteringHarness, checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling: list[list[str]] = []

    async def checkpoint(slots: list[Slot]) -> None:
        telling.append([slot.request_id for slot in slots])

    monkeypatch.setattr(metering_harness.metering, "checkpoint", checkpoint)
    slots = [(await run(metering_harness, number))[1] for number in (1, 2)]
    for slot in slots:
        slot.count(20, 1)
        slot.mark()
    await checkpoints.report()
    await checkpoints.report()
    slots[1].count(20, 2)
    await checkpoints.report()
    assert telling == [[f"{1:032x}", f"{2:032x}"], [f"{2:032x}"]]


class Replica:
    """One that notes what it is told, or hears nothing."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.told: list[list[str]] = []
        self._is_away = is_away

    async def call(self, method: str, request: pb.CheckpointRequest, *_: object) -> pb.CheckpointResponse:
        if self._is_away:
            raise unavailable("Metering")
        self.told.append([delivery.request_id[-1] for delivery in request.deliveries])
        return pb.CheckpointResponse()


class ReplicaByAccount:
    def __init__(self, **replicas: Replica) -> None:
        self._replicas = replicas

    def for_account(self, account_id: str) -> Replica:
        return self._replicas[account_id]


def running(journal: Journal, number: int, account_id: str) -> Slot:
    slot = journal.claim(f"{number:032x}", account_id)
    slot.count(20, 1)
    slot.mark()
    return slot


async def test_many_are_told_in_portions(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metering refuses a message with too many, and nothing would be heard of any of them."""
    monkeypatch.setattr(metering_module, "DELIVERIES_AT_ONCE", 2)
    journal, replica = Journal(tmp_path / "edge.billing.journal", 8), Replica()
    slots = [running(journal, number, "acct_a") for number in range(5)]
    await Metering(cast(Any, ReplicaByAccount(acct_a=replica)), SystemClock(), log).checkpoint(slots)
    assert replica.told == [["0", "1"], ["2", "3"], ["4"]]
    journal.close()


async def test_replica_that_is_away_keeps_no_other_from_hearing_of_its_own(tmp_path: Path, log: Log) -> None:
    journal, replica = Journal(tmp_path / "edge.billing.journal", 8), Replica()
    slots = [running(journal, 1, "acct_a"), running(journal, 2, "acct_b")]
    replicas = ReplicaByAccount(acct_a=Replica(is_away=True), acct_b=replica)
    with pytest.raises(LegatoError):
        await Metering(cast(Any, replicas), SystemClock(), log).checkpoint(slots)
    assert replica.told == [["2"]]
    journal.close()


async def test_what_metering_did_not_hear_is_told_again(
    metering_harness: MeteringHarness, checkpoints: Checkpoints
) -> None:
    _, slot = await run(metering_harness, 1)
    slot.count(20, 3)
    slot.mark()
    await metering_harness.shut()
    with pytest.raises(LegatoError):
        await checkpoints.report()
    await metering_harness.open()
    async with asyncio.timeout(60):
        while await told(metering_harness, 1) != (20, 3):
            await asyncio.gather(checkpoints.report(), return_exceptions=True)
            await asyncio.sleep(0.02)


async def test_request_that_is_over_is_told_by_its_settlement_alone(
    metering_harness: MeteringHarness, checkpoints: Checkpoints
) -> None:
    hold, slot = await run(metering_harness, 1)
    slot.count(20, 3)
    slot.mark()
    hold.settle(Usage(prompt_tokens=20, completion_tokens=2), pb.BASIS_PROVIDER, pb.END_COMPLETE)
    await checkpoints.report()
    await metering_harness.metering.settled()
    assert await told(metering_harness, 1) == (20, 2)
