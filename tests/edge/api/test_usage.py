"""The query of GET /v1/usage, as a client sends it."""

from typing import Any
from urllib.parse import urlencode

import pytest

from edge.reports.usage import DAY_S, HOUR_S
from legato_protos.metering.v1 import metering_pb2 as pb
from tests.edge.api_harness import ApiHarness, NoLimits
from tests.support.fakes import FakeClock

# Of the fake clock.
NOON_S = int(FakeClock().now().timestamp())


class Books(NoLimits):
    """Metering with nothing used, which notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[pb.ListUsageRequest] = []

    async def caught_up(self, account_id: str) -> None: ...

    async def usage(self, asked: pb.ListUsageRequest) -> pb.ListUsageResponse:
        self.asked.append(asked)
        return pb.ListUsageResponse()

    async def balance(self, account_id: str, key_id: str) -> pb.GetBalanceResponse:
        return pb.GetBalanceResponse(balance=pb.Balance(balance_nanos=5_000_000_000))


class UsageClient:
    def __init__(self) -> None:
        self.books = Books()
        self._edge = ApiHarness(metering=self.books)
        self.clock = self._edge.clock

    async def ask(self, parameters: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        response = await self._edge.ask("GET", "/v1/usage", urlencode(parameters, doseq=True))
        return response.status, response.body

    async def page(self, **parameters: Any) -> dict[str, Any]:
        status, page = await self.ask(parameters)
        assert status == 200, page
        return page


@pytest.fixture
def client() -> UsageClient:
    return UsageClient()


async def test_nothing_asked_is_the_last_day_by_the_hour(client: UsageClient) -> None:
    client.clock.advance(600)
    page = await client.page()
    assert page["data"][0]["start_time"] == NOON_S - DAY_S
    assert page["data"][-1]["end_time"] == NOON_S + HOUR_S
    assert (page["has_more"], page["next_page"], page["balance_usd"]) == (False, None, "5.00")


async def test_buckets_are_whole(client: UsageClient) -> None:
    page = await client.page(start_time=NOON_S + 5, end_time=NOON_S + DAY_S, bucket_width="1d")
    start_s, end_s = page["data"][0]["start_time"], page["data"][-1]["end_time"]
    assert start_s % DAY_S == end_s % DAY_S == 0
    assert start_s <= NOON_S + 5
    assert end_s >= NOON_S + DAY_S


async def test_next_page_goes_on_where_the_last_one_ended(client: UsageClient) -> None:
    first = await client.page(limit=10)
    second = await client.page(limit=10, page=first["next_page"])
    assert second["data"][0]["start_time"] == first["data"][-1]["end_time"]
    assert len(first["data"]) == len(second["data"]) == 10


@pytest.mark.parametrize(
    "parameters", [{"group_by": "model,key"}, {"group_by": ["model", "key"]}, {"group_by[]": ["model", "key"]}]
)
async def test_groups_are_taken_in_every_form(client: UsageClient, parameters: dict[str, Any]) -> None:
    await client.page(**parameters)
    [asked] = client.books.asked
    assert (asked.group_by_class, asked.group_by_key) == (True, True)


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"start_time": "yesterday"}, "start_time"),
        ({"start_time": "-5"}, "start_time"),
        ({"start_time": "9" * 30}, "start_time"),
        ({"start_time": NOON_S, "end_time": NOON_S}, "start_time"),
        ({"bucket_width": "1m"}, "bucket_width"),
        ({"bucket_width": ""}, "bucket_width"),
        ({"group_by": "city"}, "group_by"),
        ({"group_by[]": "city"}, "group_by[]"),
        ({"limit": "0"}, "limit"),
        ({"limit": "169"}, "limit"),
        ({"limit": "32", "bucket_width": "1d"}, "limit"),
        ({"page": "12"}, "page"),
        ({"page": NOON_S - 1}, "page"),
        ({"account": "acct_other"}, None),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    client: UsageClient, parameters: dict[str, Any], param: str | None
) -> None:
    status, body = await client.ask(parameters)
    assert (status, body["error"]["type"], body["error"]["param"]) == (400, "invalid_request_error", param)
    assert "acct_other" not in str(body)


async def test_the_last_day_does_not_begin_before_1970(client: UsageClient) -> None:
    page = await client.page(end_time=HOUR_S)
    assert [(bucket["start_time"], bucket["end_time"]) for bucket in page["data"]] == [(0, HOUR_S)]
