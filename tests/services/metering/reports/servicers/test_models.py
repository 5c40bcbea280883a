import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.metering.v1 import reports_pb2 as pb
from legato_protos.metering.v1.reports_pb2_grpc import ReportServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.reports.servicers.models import ReportServicer
from services.rules.usage import Usage
from tests.services.metering.samples import ACCOUNT, ask_each, grant, model_call, reserve, settle

pytestmark = pytest.mark.sqlite_suffices

DAY_S = 86_400


@pytest.fixture
async def channel(database: Database, socket_folder: Path, log: Log) -> AsyncIterator[grpc.aio.Channel]:
    listen = f"unix:{socket_folder}/metering.sock"
    server = RpcServer(listen, [ReportServicer(database)], log)
    await server.start()
    async with open_channel(listen) as channel:
        await channel.channel_ready()
        yield channel
    await server.stop(1)


def asked(**changes: Any) -> pb.GetReportRequest:
    today_s = int(time.time()) // DAY_S * DAY_S
    start, end = Timestamp(seconds=today_s - DAY_S), Timestamp(seconds=today_s + 2 * DAY_S)
    return pb.GetReportRequest(**({"start_time": start, "end_time": end} | changes))


async def test_operator_is_told_charges_costs_and_what_is_outstanding(
    channel: grpc.aio.Channel, writer: Writer
) -> None:
    stub: Any = ReportServiceStub(channel)
    call = model_call("acme", "large", 12, Usage(9, 2, 3))
    await ask_each(writer, grant(1_000), reserve(1), settle(1, prompt=5, completion=3, calls=[call]), reserve(2))
    groups = [pb.REPORT_GROUP_PROVIDER, pb.REPORT_GROUP_DAY, pb.REPORT_GROUP_ACCOUNT, pb.REPORT_GROUP_CLASS]
    answer = await stub.GetReport(asked(groups=groups))
    charged, granted = answer.rows
    assert (charged.account_id, charged.class_id, charged.provider, charged.model_name) == (
        ACCOUNT,
        "forte",
        "acme",
        "",
    )
    assert charged.day.seconds % DAY_S == 0
    assert (charged.sums.charged_nanos, charged.sums.cost_nanos, charged.sums.uncosted_calls) == (40, 12, 0)
    # What the provider said beside what was charged.
    assert (charged.sums.usage.prompt_tokens, charged.sums.told_usage.prompt_tokens) == (5, 9)
    assert (granted.sums.granted_nanos, answer.total.granted_nanos) == (1_000, 1_000)
    assert not answer.HasField("summed_time")
    assert (answer.outstanding.live_holds, answer.outstanding.held_nanos) == (1, 100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_time": None}, "a start and an end"),
        ({"groups": [99]}, "by day, class, provider, model or account"),
        ({"top_rows": -1}, "at most 100,000 rows"),
        ({"end_time": Timestamp(seconds=5)}, "begins with one day"),
    ],
)
async def test_report_that_makes_no_sense_is_refused(
    channel: grpc.aio.Channel, changes: dict[str, Any], message: str
) -> None:
    stub: Any = ReportServiceStub(channel)
    with pytest.raises(LegatoError, match=message), errors_of("Metering"):
        await stub.GetReport(asked(**changes))
