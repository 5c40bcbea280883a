"""Large bodies of accounts that cannot pay for them are not read."""

from pathlib import Path
from typing import Any, cast

from edge.billing.affordability import BYTES_PER_TOKEN_MOST, LARGE_BODY_BYTES, check_affordable
from legato_protos.metering.v1.metering_pb2 import END_REFUSED, GetBalanceResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.metering.credit.prices import Price
from tests.edge.metering_harness import ANN, MeteringHarness

MB = 1024 * 1024
# Of the cheapest class.
INPUT_NANOS = 100_000_000
LEAST_NANOS = 16 * MB // BYTES_PER_TOKEN_MOST * INPUT_NANOS // 1_000_000


async def is_refused(harness: MeteringHarness, body_bytes: int) -> bool:
    try:
        await check_affordable(harness.metering, ANN, body_bytes)
    except LegatoError as error:
        return error.reason is Reason.CREDITS_EXHAUSTED
    return False


async def test_large_body_of_an_account_without_credit_is_refused(metering_harness: MeteringHarness) -> None:
    assert await is_refused(metering_harness, LARGE_BODY_BYTES)
    assert await is_refused(metering_harness, 16 * MB)


async def test_account_passes_as_soon_as_it_could_pay_by_the_lowest_price(
    metering_harness: MeteringHarness,
) -> None:
    await metering_harness.give(LEAST_NANOS - 1)
    assert await is_refused(metering_harness, 16 * MB)
    assert not await is_refused(metering_harness, 8 * MB)
    await metering_harness.give(1, "another")
    assert not await is_refused(metering_harness, 16 * MB)


async def test_credit_that_other_requests_hold_counts_all_the_same(metering_harness: MeteringHarness) -> None:
    """Held credit is there: to call it spent would be wrong."""
    await metering_harness.give(LEAST_NANOS)
    hold = metering_harness.hold()
    await hold.reserve(10, 1000)
    assert not await is_refused(metering_harness, 16 * MB)
    hold.void(END_REFUSED)


async def test_every_chat_is_affordable_where_a_class_costs_nothing(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    prices = {"mezzo": Price(0, 0, 0), "forte": Price(1_000, 1_000, 1_000)}
    harness = MeteringHarness(socket_folder, tmp_path, log, prices)
    await harness.start()
    assert not await is_refused(harness, 16 * MB)
    await harness.close()


class NeverAsked:
    async def balance(self, account_id: str) -> GetBalanceResponse:
        raise AssertionError


async def test_small_bodies_cost_no_question() -> None:
    await check_affordable(cast(Any, NeverAsked()), ANN, LARGE_BODY_BYTES - 1)
