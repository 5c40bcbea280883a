"""Reports to accounts of their usage, balance and requests, by a real server on a socket."""

from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import MeteringServiceStub
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import errors_of
from services.chassis.timing.deadlines import SystemClock
from tests.services.metering.samples import ACCOUNT, KEY, PRICES, request_id
from tests.services.metering.servicers.messages import delivery, grant, reserve, settle

HOUR_S = 3600


async def test_usage_and_balance_are_told(channel: grpc.aio.Channel, admin: Any) -> None:
    stub: Any = MeteringServiceStub(channel)
    await grant(admin, 1_000)
    await stub.Reserve(reserve())
    await stub.Settle(settle())
    await stub.Reserve(reserve(2))
    told = await stub.GetBalance(pb.GetBalanceRequest(account_id=ACCOUNT))
    assert told.balance == pb.Balance(account_id=ACCOUNT, balance_nanos=960, held_nanos=110)
    assert told.least_input_nanos_per_million == min(price.input_nanos_per_million for price in PRICES.values())
    now_s = int(SystemClock().now().timestamp())
    request = pb.ListUsageRequest(
        account_id=ACCOUNT,
        start_time=Timestamp(seconds=now_s - now_s % HOUR_S - HOUR_S),
        end_time=Timestamp(seconds=now_s - now_s % HOUR_S + 2 * HOUR_S),
        bucket=pb.USAGE_BUCKET_HOUR,
        group_by_class=True,
    )
    [row] = (await stub.ListUsage(request)).rows
    assert (row.key_id, row.class_id, row.requests, row.cost_nanos) == ("", "forte", 1, 40)
    assert row.usage == Usage(prompt_tokens=5, completion_tokens=3)
    assert row.start_time.seconds % HOUR_S == 0


def get_request(number: int, account_id: str = ACCOUNT) -> pb.GetRequestRequest:
    return pb.GetRequestRequest(account_id=account_id, request_id=request_id(number))


async def test_request_is_told_while_it_runs_and_after_its_end(channel: grpc.aio.Channel, admin: Any) -> None:
    stub: Any = MeteringServiceStub(channel)
    await grant(admin, 1_000)
    await stub.Reserve(reserve())
    await stub.Checkpoint(pb.CheckpointRequest(deliveries=[delivery(1, 2)]))
    running = await stub.GetRequest(get_request(1))
    assert (running.key_id, running.class_id, running.price_version) == (KEY, "forte", 1)
    assert (running.state, running.held_nanos, running.charged_nanos) == (pb.REQUEST_STATE_RUNNING, 110, 0)
    assert (running.basis, running.end) == (pb.BASIS_UNSPECIFIED, pb.END_UNSPECIFIED)
    assert running.usage == Usage(prompt_tokens=5, completion_tokens=2)
    assert running.HasField("reserve_time")
    assert not running.HasField("end_time")
    await stub.Settle(settle(end=pb.END_KEY_REFUSED, basis=pb.BASIS_COUNTED))
    ended = await stub.GetRequest(get_request(1))
    assert (ended.state, ended.held_nanos, ended.charged_nanos) == (pb.REQUEST_STATE_SETTLED, 0, 40)
    assert (ended.basis, ended.end) == (pb.BASIS_COUNTED, pb.END_KEY_REFUSED)
    assert ended.usage == Usage(prompt_tokens=5, completion_tokens=3)
    assert ended.reserve_time == running.reserve_time
    assert ended.end_time.ToMicroseconds() >= ended.reserve_time.ToMicroseconds()


async def test_request_that_was_given_up_is_told_as_void(channel: grpc.aio.Channel, admin: Any) -> None:
    stub: Any = MeteringServiceStub(channel)
    await grant(admin, 1_000)
    await stub.Reserve(reserve())
    await stub.Void(pb.VoidRequest(request_id=request_id(1), account_id=ACCOUNT, end=pb.END_REFUSED))
    void = await stub.GetRequest(get_request(1))
    assert (void.state, void.held_nanos, void.charged_nanos) == (pb.REQUEST_STATE_VOID, 0, 0)
    assert (void.basis, void.end) == (pb.BASIS_UNSPECIFIED, pb.END_REFUSED)


@pytest.mark.parametrize(("number", "account_id"), [(2, ACCOUNT), (1, "acct_other")], ids=["unknown", "another's"])
async def test_request_that_is_unknown_or_another_account_s_is_not_found(
    channel: grpc.aio.Channel, admin: Any, number: int, account_id: str
) -> None:
    stub: Any = MeteringServiceStub(channel)
    await grant(admin, 1_000)
    await stub.Reserve(reserve())
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await stub.GetRequest(get_request(number, account_id))
    assert refusal.value.reason is Reason.NOT_FOUND


@pytest.mark.parametrize(
    "request_",
    [
        pb.ListUsageRequest(account_id=ACCOUNT, bucket=pb.USAGE_BUCKET_HOUR),
        pb.ListUsageRequest(account_id=ACCOUNT, start_time=Timestamp(), end_time=Timestamp()),
        pb.ListUsageRequest(
            account_id=ACCOUNT, start_time=Timestamp(nanos=1), end_time=Timestamp(), bucket=pb.USAGE_BUCKET_DAY
        ),
        pb.ListUsageRequest(
            account_id=ACCOUNT,
            start_time=Timestamp(),
            end_time=Timestamp(seconds=HOUR_S * 10**15),
            bucket=pb.USAGE_BUCKET_DAY,
        ),
    ],
    ids=["no time", "no bucket", "no full hour", "no year"],
)
async def test_usage_of_no_time_is_refused(channel: grpc.aio.Channel, request_: pb.ListUsageRequest) -> None:
    stub: Any = MeteringServiceStub(channel)
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await stub.ListUsage(request_)
    assert refusal.value.reason is Reason.REQUEST_INVALID


@pytest.mark.parametrize(
    "change",
    [
        {"bucket": pb.USAGE_BUCKET_DAY},
        {"group_by_key": False},
        {"group_by_class": True},
        {"key_ids": ["key_1"]},
        {"top_keys": -1},
        {"top_keys": 1_001},
    ],
    ids=str,
)
async def test_the_most_expensive_keys_are_told_of_a_whole_period_by_key_alone(
    channel: grpc.aio.Channel, change: dict[str, Any]
) -> None:
    stub: Any = MeteringServiceStub(channel)
    whole: dict[str, Any] = {"bucket": pb.USAGE_BUCKET_PERIOD, "group_by_key": True, "top_keys": 1}
    period: dict[str, Any] = {"start_time": Timestamp(), "end_time": Timestamp(seconds=HOUR_S)}
    assert not (await stub.ListUsage(pb.ListUsageRequest(account_id=ACCOUNT, **period, **whole))).rows
    with pytest.raises(LegatoError) as refusal, errors_of("Metering"):
        await stub.ListUsage(pb.ListUsageRequest(account_id=ACCOUNT, **period, **(whole | change)))
    assert (refusal.value.reason, refusal.value.param) == (Reason.REQUEST_INVALID, "top_keys")
