"""Operators' work with credits, at a real server on a socket."""

from typing import Any

import pytest

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from tests.services.metering.samples import ACCOUNT
from tests.services.metering.servicers.messages import grant


async def test_grant_and_adjustment_count_once(admin: Any) -> None:
    for _ in range(2):
        assert (await grant(admin, 1_000)).balance_nanos == 1_000
    adjustment = pb.AdjustCreditsRequest(
        operation_id="adjustment-1", account_id=ACCOUNT, amount_nanos=-250, reason=" charged twice "
    )
    for _ in range(2):
        assert (await admin.AdjustCredits(adjustment)).balance.balance_nanos == 750
    assert (await admin.Audit(pb.AuditRequest())).violations == []


@pytest.mark.parametrize("amount_nanos", [0, -5, 10**15 + 1])
async def test_grant_that_is_none_is_refused(admin: Any, amount_nanos: int) -> None:
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await grant(admin, amount_nanos)
    assert refusal.value.reason is Reason.REQUEST_INVALID


@pytest.mark.parametrize("grant_id", ["", "invoice 17", "x" * 65])
async def test_refusal_of_an_id_says_what_one_looks_like(admin: Any, grant_id: str) -> None:
    request = pb.GrantCreditsRequest(operation_id=grant_id, account_id=ACCOUNT, amount_nanos=5)
    with pytest.raises(LegatoError, match="1 to 64 letters, digits, - and _") as refusal, errors_of("Metering"):
        await admin.GrantCredits(request)
    assert refusal.value.param == "operation_id"


@pytest.mark.parametrize(
    ("amount_nanos", "reason"),
    [(0, "why"), (-(10**15) - 1, "why"), (5, ""), (5, "  "), (5, "x" * 201), (5, "two\nlines"), (-1, "too much")],
)
async def test_adjustment_that_cannot_be_is_refused(admin: Any, amount_nanos: int, reason: str) -> None:
    request = pb.AdjustCreditsRequest(operation_id="a", account_id=ACCOUNT, amount_nanos=amount_nanos, reason=reason)
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await admin.AdjustCredits(request)
    assert refusal.value.reason is Reason.REQUEST_INVALID
