"""Routers' leases over gRPC, on both databases, from one metering process and from two."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from legato_protos.metering.v1 import model_shares_pb2 as pb
from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.limits.servicers.model_shares import ModelShareServicer

if TYPE_CHECKING:
    from legato_protos.metering.v1.model_shares_pb2_grpc import ModelShareServiceAsyncStub

LIMIT = 8
MODEL = "host/model"


@asynccontextmanager
async def serving(database: Database, folder: Path, log: Log) -> AsyncIterator["ModelShareServiceAsyncStub"]:
    address = f"unix:{folder}/metering.sock"
    server = RpcServer(address, [ModelShareServicer(database, lost_router_s=60)], log)
    await server.start()
    async with open_channel(address) as channel:
        yield ModelShareServiceStub(channel)
    await server.stop(0)


@pytest.fixture
async def metering(database: Database, socket_folder: Path, log: Log) -> AsyncIterator["ModelShareServiceAsyncStub"]:
    async with serving(database, socket_folder, log) as stub:
        yield stub


async def renew(
    stub: "ModelShareServiceAsyncStub", router: str, sequence: int, held: int, wanted: int, limit: int = LIMIT
) -> pb.RenewSharesResponse:
    claim = pb.ShareClaim(limit_name=MODEL, limit=limit, held=held, wanted=wanted)
    request = pb.RenewSharesRequest(holder_id=router, instance=router, sequence=sequence, claims=[claim])
    with errors_of("Metering"):
        return await stub.RenewShares(request, timeout=10)


async def test_routers_get_what_they_want_and_together_no_more_than_the_limit(
    metering: "ModelShareServiceAsyncStub",
) -> None:
    first = await renew(metering, "a", 1, held=0, wanted=6)
    assert [(share.places, share.is_contended) for share in first.shares] == [(8, False)]
    assert (first.lease.seconds, first.call_again_after.seconds) == (5, 1)
    second = await renew(metering, "b", 1, held=0, wanted=6)
    assert [(share.places, share.is_contended) for share in second.shares] == [(0, True)]
    assert second.call_again_after.ToMilliseconds() == 250
    # It is told its fair share, but until it says so it may be using the others.
    assert (await renew(metering, "a", 2, held=8, wanted=6)).shares[0].places == 4
    assert (await renew(metering, "b", 2, held=0, wanted=6)).shares[0].places == 0
    assert (await renew(metering, "a", 3, held=5, wanted=6)).shares[0].places == 4
    assert (await renew(metering, "b", 3, held=0, wanted=6)).shares[0].places == 3


async def test_repeated_call_gets_the_same_answer_and_an_overtaken_one_none(
    metering: "ModelShareServiceAsyncStub",
) -> None:
    assert (await renew(metering, "a", 5, held=0, wanted=3)).shares[0].places == 4
    assert (await renew(metering, "b", 1, held=0, wanted=8)).shares[0].places == 4
    assert (await renew(metering, "a", 5, held=0, wanted=3)).shares[0].places == 4
    with pytest.raises(LegatoError, match="later call"):
        await renew(metering, "a", 4, held=0, wanted=0)
    assert (await renew(metering, "b", 2, held=4, wanted=8)).shares[0].places == 4


async def test_shares_outlast_metering(database: Database, socket_folder: Path, log: Log) -> None:
    async with serving(database, socket_folder, log) as stub:
        await renew(stub, "a", 1, held=0, wanted=5)
    async with serving(database, socket_folder, log) as stub:
        assert (await renew(stub, "b", 1, held=0, wanted=8)).shares[0].places == 1


async def test_several_metering_processes_divide_one_limit(
    database: Database, database_url: str, socket_folder: Path, log: Log
) -> None:
    (socket_folder / "2").mkdir()
    second = Database(database_url, "metering")
    async with serving(database, socket_folder, log) as one, serving(second, socket_folder / "2", log) as two:
        held = dict.fromkeys("abcdef", 0)
        for sequence in range(1, 6):
            calls = [
                renew([one, two][(number + sequence) % 2], router, sequence, held[router], wanted=1 + number)
                for number, router in enumerate(held)
            ]
            answers = await asyncio.gather(*calls)
            held = {router: answer.shares[0].places for router, answer in zip(held, answers, strict=True)}
            assert sum(held.values()) <= LIMIT
        assert sum(held.values()) == LIMIT
    second.close()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (pb.RenewSharesRequest(sequence=1), "holder_id"),
        (pb.RenewSharesRequest(holder_id="a"), "sequence"),
        (pb.RenewSharesRequest(holder_id="a", sequence=1, claims=[pb.ShareClaim(limit_name=MODEL)]), "claims"),
        (pb.RenewSharesRequest(holder_id="a", sequence=1, claims=[pb.ShareClaim(limit=1)]), "claims"),
        (
            pb.RenewSharesRequest(
                holder_id="a", sequence=1, claims=[pb.ShareClaim(limit_name=MODEL, limit=1, held=-1)]
            ),
            "claims",
        ),
        (
            pb.RenewSharesRequest(
                holder_id="a", sequence=1, claims=[pb.ShareClaim(limit_name=MODEL, limit=1) for _ in range(2)]
            ),
            "claims",
        ),
    ],
)
async def test_mistaken_claims_are_refused(
    metering: "ModelShareServiceAsyncStub", wrong: pb.RenewSharesRequest, named: str
) -> None:
    with pytest.raises(LegatoError) as refused, errors_of("Metering"):
        await metering.RenewShares(wrong, timeout=10)
    assert refused.value.param == named
