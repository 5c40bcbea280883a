"""Requests that edges have in their journals and a restored ledger does not know: listed, and booked once."""

import asyncio
import contextlib
from typing import Any

import pytest

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.metering.credit.records import Settle
from services.metering.credit.unmatched_settlements import KEPT_S, UnmatchedSettlements
from tests.services.metering.samples import ACCOUNT, KEY, NOTHING, request_id
from tests.services.metering.servicers.messages import Ask, grant, refusal_of, settle
from tests.support.fakes import FakeClock

COST_NANOS = 5 * 2 + 3 * 10


async def offer(ask: Ask, number: int = 1, **known: str) -> Reason:
    """An edge offers a settlement, as every 30 s."""
    return (await refusal_of(ask("Settle", settle(number, **known)))).reason


async def book(admin: Any, *numbers: int) -> list[pb.UnmatchedSettlement]:
    request = pb.BookUnmatchedRequest(request_ids=map(request_id, numbers))
    return list((await admin.BookUnmatched(request)).settlements)


async def balance(admin: Any) -> tuple[int, int]:
    """Returns the balance, and what of it is held."""
    [found] = (await admin.ListBalances(pb.ListBalancesRequest(account_ids=[ACCOUNT]))).balances
    return found.balance_nanos, found.held_nanos


async def test_a_request_that_the_ledger_does_not_know_is_listed_and_booked_once(admin: Any, ask: Ask) -> None:
    await grant(admin, 1_000)
    assert await offer(ask, class_id="forte", key_id=KEY) is Reason.NOT_FOUND
    [listed] = await book(admin)
    assert (listed.request_id, listed.account_id, listed.key_id) == (request_id(1), ACCOUNT, KEY)
    assert (listed.class_id, listed.cost_nanos, listed.usage.completion_tokens) == ("forte", COST_NANOS, 3)
    assert not listed.HasField("charged_nanos")
    [booked] = await book(admin, 1)
    assert booked.charged_nanos == COST_NANOS
    # The edge offers it again, and frees its slot.
    assert (await ask("Settle", settle(class_id="forte"))).charged_nanos == COST_NANOS
    assert await book(admin, 1) == []
    assert await balance(admin) == (1_000 - COST_NANOS, 0)
    assert (await admin.Audit(pb.AuditRequest())).violations == []


async def test_edges_and_operators_at_the_same_time_book_it_once(admin: Any, ask: Ask) -> None:
    await grant(admin, 1_000)
    for number in range(1, 9):
        await offer(ask, number, class_id="forte")

    async def offer_until_settled(number: int) -> None:
        while True:
            with contextlib.suppress(LegatoError):
                await ask("Settle", settle(number, class_id="forte"))
                return

    numbers = list(range(1, 9))
    async with asyncio.timeout(60):
        await asyncio.gather(book(admin, *numbers), book(admin, *numbers), *map(offer_until_settled, numbers))
    assert await balance(admin) == (1_000 - 8 * COST_NANOS, 0)
    assert (await admin.Audit(pb.AuditRequest())).violations == []


async def test_what_cannot_be_booked_is_told_and_stays(admin: Any, ask: Ask) -> None:
    await offer(ask, 1, class_id="forte")
    await offer(ask, 2)
    await offer(ask, 3, class_id="no such class")
    without_credit, *without_class = await book(admin, 1, 2, 3)
    assert "credit" in without_credit.refusal
    assert [(each.class_id, each.refusal, each.cost_nanos) for each in without_class] == [("", "", 0)] * 2
    await grant(admin, 1_000)
    assert (await book(admin, 1))[0].charged_nanos == COST_NANOS


@pytest.mark.parametrize("waited_s", [KEPT_S - 1, KEPT_S + 1])
async def test_what_no_edge_offers_any_more_is_forgotten(clock: FakeClock, waited_s: float) -> None:
    unmatched = UnmatchedSettlements(clock)
    offered = Settle(request_id(1), ACCOUNT, NOTHING, "provider", "complete", class_id="forte")
    unmatched.record(offered)
    clock.advance(waited_s)
    assert unmatched.list() == ([offered] if waited_s < KEPT_S else [])
