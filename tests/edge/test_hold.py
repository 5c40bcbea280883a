"""Holds against a real metering on a socket, which can be taken away and brought back."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edge.hold import FIRST_SLICE_TOKENS, Hold
from edge.metering import Metering
from edge.principals import Principal
from edge.services import MeteringReplica
from protos.metering.v1 import metering_pb2 as pb
from protos.type.v1.usage_pb2 import Usage
from services.chassis.clock import SystemClock
from services.chassis.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange import ExchangeBroken
from services.chassis.log import Log
from services.chassis.replicas import Replicas
from services.chassis.server import Server
from services.metering.__main__ import MIGRATIONS
from services.metering.audit import audit
from services.metering.batch import Writer
from services.metering.limits import LocalLimiter, Rate
from services.metering.operations import Grant
from services.metering.prices import read_prices
from services.metering.servicer import MeteringServicer, register_metering
from services.metering.settings import MeteringSettings
from services.metering.store.price_versions import adopt_prices
from services.metering.store.reports import read_balances

ANN = Principal("acct_ann", "key_ann", frozenset(), None, "forte", None)
# Forte's prices: what a million tokens cost, in nano-dollars.
INPUT_NANOS, OUTPUT_NANOS = 1_070_000_000, 3_450_000_000


class House:
    def __init__(self, socket_folder: Path, tmp_path: Path, log: Log) -> None:
        self._address = f"unix:{socket_folder}/metering.sock"
        self._log = log
        self._database = Database(f"sqlite:///{tmp_path}/metering.db", "metering")
        self._database.migrate(MIGRATIONS)
        with self._database.transaction(writes=True) as connection:
            prices = adopt_prices(connection, read_prices(MeteringSettings().prices))
        self._writer = Writer(self._database, prices, 3600, log)
        clock = SystemClock()
        self.replicas = Replicas("Metering", self._address, lambda address: MeteringReplica(address, clock, log), log)
        self.metering = Metering(self.replicas, clock, log)

    async def open(self) -> None:
        servicer = MeteringServicer(self._database, self._writer, LocalLimiter(SystemClock()), Rate(60, 2), self._log)
        self._server = Server(self._address, [partial(register_metering, servicer)], self._log)
        await self._server.start()

    async def shut(self) -> None:
        await self._server.stop(0)

    async def start(self) -> None:
        await self.open()
        await self.replicas.start()

    async def close(self) -> None:
        await self.metering.settled()
        await self.replicas.close()
        await self.shut()
        await self._writer.close()
        assert await audit(self._database) == []
        self._database.close()

    async def give(self, nanos: int, grant_id: str = "grant") -> None:
        await self._writer.submit(Grant(request_id=grant_id, account_id=ANN.account_id, amount_nanos=nanos), str)

    async def balance(self) -> tuple[int, int]:
        await self.metering.settled()
        [account] = await self._database.read(lambda connection: read_balances(connection, [ANN.account_id]))
        return account.balance_nanos, account.held_nanos

    def hold(self, number: int = 1) -> Hold:
        return Hold(self.metering, ANN, f"{number:032x}", "forte")


@pytest.fixture
async def house(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[House]:
    house = House(socket_folder, tmp_path, log)
    await house.start()
    yield house
    await house.close()


def cost(prompt_tokens: int, output_tokens: int) -> int:
    return -(-(prompt_tokens * INPUT_NANOS + output_tokens * OUTPUT_NANOS) // 1_000_000)


async def test_first_slice_is_held_before_anything_is_used(house: House) -> None:
    await house.give(10**9)
    grant = await house.hold().reserve(100, None)
    assert (grant.prompt_tokens, grant.output_tokens, grant.last) == (100, FIRST_SLICE_TOKENS, False)
    assert await house.balance() == (10**9, cost(100, FIRST_SLICE_TOKENS))


async def test_poor_account_holds_what_it_has(house: House) -> None:
    await house.give(cost(100, 50))
    grant = await house.hold().reserve(100, 1000)
    assert grant.output_tokens == 50


async def test_empty_account_is_refused_and_leaves_nothing_behind(house: House) -> None:
    hold = house.hold()
    with pytest.raises(LegatoError) as refused:
        await hold.reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    hold.void(pb.END_REFUSED)
    assert await house.balance() == (0, 0)


async def test_credit_that_is_held_elsewhere_is_worth_a_retry(house: House) -> None:
    await house.give(cost(100, 10))
    await house.hold(1).reserve(100, 10)
    with pytest.raises(LegatoError) as refused:
        await house.hold(2).reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_HELD
    assert refused.value.retry_after_s


async def test_hold_grows_until_the_last_of_the_credit(house: House) -> None:
    await house.give(cost(100, 9000))
    hold = house.hold()
    await hold.reserve(100, None)
    grown = await hold.grow(100, 8000, Usage(prompt_tokens=100, completion_tokens=2048))
    assert (grown.output_tokens, grown.last) == (8000, False)
    last = await hold.grow(100, 16000, Usage(prompt_tokens=100, completion_tokens=4000))
    assert (last.output_tokens, last.last, hold.spent) == (9000, True, True)
    assert hold.covers(100, 9000)
    assert not hold.covers(100, 9001)


async def test_what_was_used_is_charged_once(house: House) -> None:
    await house.give(10**9)
    hold = house.hold()
    await hold.reserve(100, 10)
    hold.settle(Usage(prompt_tokens=90, completion_tokens=7), pb.BASIS_PROVIDER, pb.END_COMPLETE)
    hold.settle(Usage(prompt_tokens=90, completion_tokens=99), pb.BASIS_COUNTED, pb.END_CLIENT_GONE)
    hold.void(pb.END_REFUSED)
    assert await house.balance() == (10**9 - cost(90, 7), 0)


async def test_nothing_delivered_is_not_charged(house: House) -> None:
    await house.give(10**9)
    hold = house.hold()
    await hold.reserve(100, 10)
    hold.void(pb.END_CLIENT_GONE)
    assert await house.balance() == (10**9, 0)


async def test_settlement_waits_for_a_metering_that_is_away(house: House) -> None:
    await house.give(10**9)
    hold = house.hold()
    await hold.reserve(100, 10)
    await house.shut()
    hold.settle(Usage(prompt_tokens=90, completion_tokens=7), pb.BASIS_PROVIDER, pb.END_COMPLETE)
    await asyncio.sleep(0.2)
    await house.open()
    async with asyncio.timeout(10):
        assert await house.balance() == (10**9 - cost(90, 7), 0)


async def test_reserve_rides_out_a_restart_of_metering(house: House) -> None:
    await house.give(10**9)
    await house.shut()
    reserving = asyncio.create_task(house.hold().reserve(100, 10))
    await asyncio.sleep(0.1)
    await house.open()
    async with asyncio.timeout(10):
        assert (await reserving).output_tokens == 10


async def test_client_who_leaves_while_credit_is_being_held_leaves_no_hold_behind(house: House) -> None:
    await house.give(10**9)
    hold = house.hold()
    reserving = asyncio.create_task(hold.reserve(100, 10))
    await asyncio.sleep(0)
    reserving.cancel()
    await asyncio.gather(reserving, return_exceptions=True)
    hold.void(pb.END_CLIENT_GONE)
    assert await house.balance() == (10**9, 0)


class LosesTheFirstAnswer:
    """Stands between the edge and metering: the first question arrives, its answer does not."""

    def __init__(self, replicas: Replicas[MeteringReplica]) -> None:
        self._replicas = replicas
        self._has_lost = False

    def for_account(self, account_id: str) -> "LosesTheFirstAnswer":
        return self

    async def ask(self, *question: Any) -> Any:
        answer = await asyncio.gather(self._replicas.for_account(ANN.account_id).ask(*question), return_exceptions=True)
        if not self._has_lost:
            self._has_lost = True
            raise ExchangeBroken("Metering")
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]


async def test_refusal_of_a_repeated_question_is_made_to_last(house: House, log: Log) -> None:
    """A copy that is still under way must not hold credit later, when nobody is left to give it back."""
    await house.give(1)
    metering = Metering(LosesTheFirstAnswer(house.replicas), SystemClock(), log)  # type: ignore[arg-type]
    hold = Hold(metering, ANN, f"{1:032x}", "forte")
    with pytest.raises(LegatoError) as refused:
        await hold.reserve(100, 10)
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    hold.void(pb.END_REFUSED)
    await metering.settled()
    await house.give(10**9, "more")
    with pytest.raises(LegatoError) as late:
        await house.hold(1).reserve(100, 10)
    assert late.value.reason is Reason.REQUEST_RESOLVED


async def test_rate_is_taken_and_then_refused_with_its_figures(house: House) -> None:
    first = await house.metering.admit(ANN)
    assert (first.limit_requests, first.remaining_requests) == (60, 1)
    await house.metering.admit(ANN)
    with pytest.raises(LegatoError) as refused:
        await house.metering.admit(ANN)
    assert refused.value.reason is Reason.RATE_LIMITED
    assert refused.value.figures["limit_requests"] == 60
