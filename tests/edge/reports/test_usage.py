"""GetUsage as the edge computes it for every transport."""

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from edge.reports.usage import DAY_S, HOUR_S, LATEST_S, get_usage
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from tests.edge.metering_harness import ANN
from tests.edge.reports.harness import CLOCK, edge_with

NOON_S = int(CLOCK.now().timestamp())


class Books:
    """Metering with these rows, which notes what is asked."""

    def __init__(self, *rows: metering.UsageRow) -> None:
        self.rows = rows
        self.asked: list[metering.ListUsageRequest] = []

    async def caught_up(self, account_id: str) -> None: ...

    async def usage(self, asked: metering.ListUsageRequest) -> metering.ListUsageResponse:
        self.asked.append(asked)
        return metering.ListUsageResponse(rows=self.rows)

    async def balance(self, account_id: str, key_id: str) -> metering.GetBalanceResponse:
        return metering.GetBalanceResponse(balance=metering.Balance(balance_nanos=7, owed_nanos=3))


async def ask(books: Books, **request: Any) -> pb.GetUsageResponse:
    return await get_usage(edge_with(books), ANN, pb.GetUsageRequest(**request))


def row(key_id: str, *, class_id: str = "", start_s: int = NOON_S, cost_nanos: int = 10) -> metering.UsageRow:
    usage = Usage(prompt_tokens=5, cached_tokens=2, completion_tokens=3)
    start_time = Timestamp(seconds=start_s)
    return metering.UsageRow(
        start_time=start_time, key_id=key_id, class_id=class_id, requests=1, usage=usage, cost_nanos=cost_nanos
    )


def rows_of(page: pb.GetUsageResponse, start_s: int = NOON_S) -> list[pb.UsageRow]:
    [bucket] = [bucket for bucket in page.buckets if bucket.start_time.seconds == start_s]
    return [*bucket.rows]


async def test_caller_has_one_row_for_all_its_keys_and_requests_with_a_key_have_none() -> None:
    books = Books(row("key_r1"), row("key_a"), row("key_r2", cost_nanos=4), row("key_s"), row("key_b", cost_nanos=1))
    page = await ask(books, end_time=Timestamp(seconds=NOON_S + HOUR_S), group_by=[pb.GROUP_BY_CALLER])
    assert books.asked[0].group_by_key
    assert [(each.caller, each.key_id, each.requests, each.usage.cost_nanos) for each in rows_of(page)] == [
        ("reports", "", 2, 14),
        ("", "", 2, 11),
        ("search", "", 1, 10),
    ]
    used = rows_of(page)[0].usage
    assert (used.prompt_tokens, used.cached_tokens, used.completion_tokens) == (10, 4, 6)


async def test_keys_and_models_of_a_caller_are_told_apart_where_they_are_asked_for() -> None:
    books = Books(row("key_r1", class_id="mezzo"), row("key_r1", class_id="forte"), row("key_r2", class_id="mezzo"))
    until = Timestamp(seconds=NOON_S + HOUR_S)
    by_all = await ask(books, end_time=until, group_by=[pb.GROUP_BY_CALLER, pb.GROUP_BY_KEY, pb.GROUP_BY_MODEL])
    told = {(each.caller, each.key_id, each.model) for each in rows_of(by_all)}
    assert told == {("reports", "key_r1", "mezzo"), ("reports", "key_r1", "forte"), ("reports", "key_r2", "mezzo")}
    by_model = await ask(books, end_time=until, group_by=[pb.GROUP_BY_CALLER, pb.GROUP_BY_MODEL])
    assert {(each.model, each.requests) for each in rows_of(by_model)} == {("mezzo", 2), ("forte", 1)}


async def test_without_groups_auth_is_not_asked_and_the_balance_is_told() -> None:
    books = Books()
    page = await ask(books)
    assert (books.asked[0].group_by_key, books.asked[0].group_by_class) == (False, False)
    assert (page.balance_nanos, page.owed_nanos, page.next_page_token) == (7, 3, "")
    assert (page.buckets[0].start_time.seconds, page.buckets[-1].end_time.seconds) == (NOON_S - DAY_S, NOON_S)


@pytest.mark.parametrize(
    ("request_fields", "param"),
    [
        ({"start_time": Timestamp(seconds=-1)}, "start_time"),
        ({"end_time": Timestamp(seconds=LATEST_S + 1)}, "end_time"),
        ({"start_time": Timestamp(seconds=NOON_S)}, "start_time"),
        ({"bucket_width": 9}, "bucket_width"),
        ({"group_by": [pb.GROUP_BY_UNSPECIFIED]}, "group_by"),
        ({"group_by": [9]}, "group_by"),
        ({"page_size": -1}, "page_size"),
        ({"page_size": 169}, "page_size"),
        ({"page_token": "12"}, "page_token"),
        ({"page_token": "x"}, "page_token"),
        ({"page_token": str(NOON_S + HOUR_S)}, "page_token"),
    ],
)
async def test_what_cannot_be_meant_is_refused_by_the_name_of_its_field(
    request_fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(LegatoError) as refused:
        await ask(Books(), **request_fields)
    assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, param)
    assert param in refused.value.message
