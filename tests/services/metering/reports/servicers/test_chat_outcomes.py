"""Failures and times at a real server: reported by an edge, read with a user's token, for the user's account only."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from legato_protos.metering.v1.chat_outcomes_pb2_grpc import ChatOutcomeServiceStub
from legato_protos.metering.v1.metering_pb2 import GetRequestRequest
from legato_protos.metering.v1.metering_pb2_grpc import MeteringServiceStub
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_MESSAGES, CHAT_API_UNSPECIFIED
from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Rate
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.limits.rates import LocalLimiter, RateLimits
from services.metering.reports.messages.chat_outcomes import PARTS_MOST
from services.metering.reports.servicers.chat_outcomes import ChatOutcomeServicer
from services.metering.servicers.metering import MeteringServicer
from tests.services.metering.samples import ACCOUNT, KEY, ask_each, grant
from tests.services.metering.servicers.messages import reserve, settle
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

OTHER = "acct_bbbbbbbbbbbbbbbb"
SIGNER = AccessTokenSigner("1f" * 32)


@pytest.fixture
async def channels(
    database: Database, writer: Writer, socket_folder: Path, log: Log
) -> AsyncIterator[list[grpc.aio.Channel]]:
    """That of the edge, and that of a console."""
    check = AccessCheck(AccessTokenVerifier(SIGNER.public_key()), lambda: time.time_ns() // 1000)
    metering = MeteringServicer(database, writer, LocalLimiter(FakeClock()), RateLimits(Rate(3_000, 2)), log)
    servicers = [metering, ChatOutcomeServicer(database)]
    listen, console = (f"unix:{socket_folder}/{name}.sock" for name in ("metering", "console"))
    server = RpcServer(listen, servicers, log, access=check, console_listen=console)
    await server.start()
    async with open_channel(listen) as edge_channel, open_channel(console) as console_channel:
        await edge_channel.channel_ready()
        await console_channel.channel_ready()
        yield [edge_channel, console_channel]
    await server.stop(1)


def outcomes_request(**changes: Any) -> pb.GetChatOutcomesRequest:
    hour_s = int(time.time()) // 3600 * 3600
    given = {"account_id": ACCOUNT, "start_times": [Timestamp(seconds=hour_s - 3600)]}
    return pb.GetChatOutcomesRequest(**(given | {"end_time": Timestamp(seconds=hour_s + 7200)} | changes))


def failure(**changes: Any) -> pb.FailureCount:
    given: dict[str, Any] = {
        "account_id": ACCOUNT,
        "key_id": KEY,
        "class_id": "forte",
        "reason": "RATE_LIMITED",
        "requests": 2,
    }
    return pb.FailureCount(**(given | {"time": Timestamp(seconds=int(time.time()))} | changes))


async def read(channel: grpc.aio.Channel, request: pb.GetChatOutcomesRequest, account_id: str) -> Any:
    now_us = time.time_ns() // 1000
    access = Access("user_1", "session_1", account_id, AccountRole.VIEWER, False, now_us, now_us + 60_000_000)
    stub: Any = ChatOutcomeServiceStub(channel)
    with errors_of("Metering"):
        return await stub.GetChatOutcomes(request, metadata=[(METADATA_KEY, SIGNER.sign(access))])


async def test_an_edge_reports_and_the_account_alone_reads(channels: list[grpc.aio.Channel], writer: Writer) -> None:
    edge, console = channels
    metering: Any = MeteringServiceStub(edge)
    await ask_each(writer, grant(10_000))
    await metering.Reserve(reserve(1))
    await metering.Settle(settle(1, first_token_ms=250, duration_ms=2_000))
    await metering.ReportFailures(pb.ReportFailuresRequest(failures=[failure(), failure(account_id=OTHER, requests=5)]))
    await metering.ReportFailures(pb.ReportFailuresRequest(failures=[failure(reason="NEWER_REASON", is_cut=True)]))
    found = await read(console, outcomes_request(), ACCOUNT)
    assert found.total.charged_requests == found.total.first_token.chats == found.total.duration.chats == 1
    assert abs(found.total.first_token.p50_ms - 250) <= 12
    assert abs(found.total.duration.p95_ms - 2_000) <= 100
    assert [(each.reason, each.requests, each.cut_requests) for each in found.total.failures] == [
        ("NEWER_REASON", 2, 2),
        ("RATE_LIMITED", 2, 0),
    ]
    assert [each.key_id for each in found.keys] == [KEY]
    assert found.parts[0].HasField("start_time")
    of_other = await read(console, outcomes_request(account_id=OTHER), OTHER)
    assert [(each.reason, each.requests) for each in of_other.total.failures] == [("RATE_LIMITED", 5)]
    # A key of another account is none of this one's.
    assert not (await read(console, outcomes_request(account_id=OTHER, key_ids=["key_other"]), OTHER)).total.failures
    with pytest.raises(LegatoError) as refusal:
        await read(console, outcomes_request(account_id=OTHER), ACCOUNT)
    assert refusal.value.reason is Reason.ROLE_MISSING


async def test_what_cannot_be_counted_is_refused(channels: list[grpc.aio.Channel]) -> None:
    edge, console = channels
    metering: Any = MeteringServiceStub(edge)
    for wrong in ({"reason": "What was said"}, {"requests": 0}, {"account_id": ""}, {"class_id": "no class"}):
        with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
            await metering.ReportFailures(pb.ReportFailuresRequest(failures=[failure(**wrong)]))
        assert refusal.value.reason is Reason.REQUEST_INVALID, wrong
    many_parts = [Timestamp(seconds=3600)] * (PARTS_MOST + 1)
    unreadable: dict[str, Any]
    for unreadable in ({"start_times": []}, {"start_times": many_parts}, {"key_ids": ["no key"]}):
        with pytest.raises(LegatoError) as refusal:
            await read(console, outcomes_request(**unreadable), ACCOUNT)
        assert refusal.value.reason is Reason.REQUEST_INVALID, unreadable


async def test_times_and_the_api_are_kept_with_the_receipt_and_unknown_ones_stay_unknown(
    channels: list[grpc.aio.Channel], writer: Writer
) -> None:
    metering: Any = MeteringServiceStub(channels[0])
    await ask_each(writer, grant(10_000))
    for number, api in ((1, CHAT_API_MESSAGES), (2, 99)):
        await metering.Reserve(reserve(number, api=api))
    await metering.Settle(settle(1, first_token_ms=0, duration_ms=10**15))
    await metering.Settle(settle(2))
    known, unknown = [
        await metering.GetRequest(GetRequestRequest(account_id=ACCOUNT, request_id=f"{number:032x}"))
        for number in (1, 2)
    ]
    assert known.HasField("first_token_ms")
    assert (known.first_token_ms, known.duration_ms) == (0, 86_400_000)
    assert not unknown.HasField("first_token_ms")
    assert not unknown.HasField("duration_ms")
    assert (known.api, unknown.api) == (CHAT_API_MESSAGES, CHAT_API_UNSPECIFIED)
