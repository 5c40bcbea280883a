"""Routers' shares over gRPC."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceStub
from services.chassis.errors import LegatoError
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.limits.model_shares import LEARNING_S, LocalModelShares
from services.metering.limits.servicers.model_shares import ModelShareServicer
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

if TYPE_CHECKING:
    from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceAsyncStub

MODEL = "host/model"


@pytest.fixture
async def metering(socket_folder: Path, clock: FakeClock, log: Log) -> AsyncIterator["ModelShareServiceAsyncStub"]:
    address = f"unix:{socket_folder}/metering.sock"
    server = RpcServer(address, [ModelShareServicer(LocalModelShares(clock))], log)
    clock.advance(LEARNING_S)
    await server.start()
    async with open_channel(address) as channel:
        yield ModelShareServiceStub(channel)
    await server.stop(0)


async def renew(stub: "ModelShareServiceAsyncStub", router: str, sequence: int, **claim: int) -> list[tuple[int, bool]]:
    claims = [pb.ShareClaim(limit_name=MODEL, limit=8, **claim)]
    request = pb.RenewSharesRequest(router_id=router, sequence=sequence, claims=claims)
    with errors_of("Metering"):
        response = await stub.RenewShares(request, timeout=10)
    return [(share.places, share.is_contended) for share in response.shares]


async def test_routers_get_what_they_want_and_together_no_more_than_the_limit(
    metering: "ModelShareServiceAsyncStub",
) -> None:
    assert await renew(metering, "a", 1, held=0, wanted=6) == [(8, False)]
    assert await renew(metering, "b", 1, held=0, wanted=6) == [(0, True)]
    # It is given its fair share, but until it says so it may be using the others.
    assert await renew(metering, "a", 2, held=8, wanted=6) == [(4, True)]
    assert await renew(metering, "b", 2, held=0, wanted=6) == [(0, True)]
    assert await renew(metering, "a", 3, held=5, wanted=6) == [(4, True)]
    assert await renew(metering, "b", 3, held=0, wanted=6) == [(3, True)]
    with pytest.raises(LegatoError, match="later call"):
        await renew(metering, "a", 2, held=0, wanted=0)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (pb.RenewSharesRequest(sequence=1), "router_id"),
        (pb.RenewSharesRequest(router_id="a", claims=[pb.ShareClaim(limit_name=MODEL)]), "claims"),
        (pb.RenewSharesRequest(router_id="a", claims=[pb.ShareClaim(limit=1)]), "claims"),
        (pb.RenewSharesRequest(router_id="a", claims=[pb.ShareClaim(limit_name=MODEL, limit=1, held=-1)]), "claims"),
        (pb.RenewSharesRequest(router_id="a", claims=[pb.ShareClaim(limit_name=MODEL, limit=1)] * 2), "claims"),
    ],
)
async def test_mistaken_claims_are_refused(
    metering: "ModelShareServiceAsyncStub", wrong: pb.RenewSharesRequest, named: str
) -> None:
    with pytest.raises(LegatoError) as refused, errors_of("Metering"):
        await metering.RenewShares(wrong, timeout=10)
    assert refused.value.param == named
