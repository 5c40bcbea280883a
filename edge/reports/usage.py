"""Usage of an account, in buckets of hours or days, with its balance and its spend limits."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from legato_protos.chat.v1 import chat_pb2 as pb
from legato_protos.metering.v1 import metering_pb2 as metering
from legato_protos.metering.v1.spend_limits_pb2 import Spend
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.usage import add_usage

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
# The end of the year 9999.
LATEST_S: Final = 253_402_300_799
# The second at which a page begins.
_PAGE: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


class Width(NamedTuple):
    seconds: int
    bucket: "metering.UsageBucket.ValueType"
    # The most buckets of a page, which is also the default.
    most: int


_HOURS: Final = Width(HOUR_S, metering.USAGE_BUCKET_HOUR, 168)
_WIDTHS: Final = {
    pb.BUCKET_WIDTH_UNSPECIFIED: _HOURS,
    pb.BUCKET_WIDTH_HOUR: _HOURS,
    pb.BUCKET_WIDTH_DAY: Width(DAY_S, metering.USAGE_BUCKET_DAY, 31),
}


class PageFields(NamedTuple):
    """The names that a transport has for the fields of a page, for its error messages."""

    size: str = "page_size"
    page: str = "page_token"
    next_page: str = "next_page_token"


class UsagePeriod(NamedTuple):
    """The buckets that a request asks for: where its page begins and ends, and the end of all pages."""

    width: Width
    start_s: int
    page_end_s: int
    end_s: int


def period_of(request: pb.GetUsageRequest, now_s: int, fields: PageFields) -> UsagePeriod:
    width = _WIDTHS.get(request.bucket_width)
    if width is None:
        raise _invalid(Sentence("bucket_width_unknown"), "bucket_width")
    end_s = _seconds(request, "end_time", now_s)
    start_s = _seconds(request, "start_time", max(0, end_s - DAY_S))
    if start_s >= end_s:
        raise _invalid(Sentence("start_not_before_end"), "start_time")
    size = request.page_size or width.most
    if not 1 <= size <= width.most:
        raise _invalid(Sentence("whole_number_range", name=fields.size, most=width.most), fields.size)
    # Buckets are whole: the first and the last may extend beyond the requested period.
    first_s = start_s // width.seconds * width.seconds
    last_s = -(-end_s // width.seconds) * width.seconds
    page_s = first_s
    if page := request.page_token:
        page_s = int(page) if _PAGE.fullmatch(page) else -1
    if page_s % width.seconds or not first_s <= page_s <= last_s:
        raise _invalid(Sentence("page_of_another_query", name=fields.page, source=fields.next_page), fields.page)
    return UsagePeriod(width, page_s, min(last_s, page_s + size * width.seconds), last_s)


def _seconds(request: pb.GetUsageRequest, field: str, default_s: int) -> int:
    if not request.HasField(field):  # type: ignore[arg-type]
        return default_s
    seconds: int = getattr(request, field).seconds
    if not 0 <= seconds <= LATEST_S:
        raise _invalid(Sentence("years_range", name=field), field)
    return seconds


def _invalid(sentence: Sentence, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param=param)


_RPC_FIELDS: Final = PageFields()
_GROUPS: Final = frozenset(pb.GroupBy.values()) - {pb.GROUP_BY_UNSPECIFIED}


async def get_usage(
    edge: EdgeState, principal: Principal, request: pb.GetUsageRequest, fields: PageFields = _RPC_FIELDS
) -> pb.GetUsageResponse:
    """Returns a page of the usage of the principal's account, its balance, and the spend limits that apply to it."""
    account_id, books = principal.account_id, edge.metering
    period, groups = period_of(request, int(edge.clock.now().timestamp()), fields), set(request.group_by)
    if not groups <= _GROUPS:
        raise _invalid(Sentence("group_by_unknown"), "group_by")
    await books.caught_up(account_id)
    rows = await books.usage(
        metering.ListUsageRequest(
            account_id=account_id,
            start_time=Timestamp(seconds=period.start_s),
            end_time=Timestamp(seconds=period.page_end_s),
            bucket=period.width.bucket,
            group_by_key=bool(groups & {pb.GROUP_BY_KEY, pb.GROUP_BY_CALLER}),
            group_by_class=pb.GROUP_BY_MODEL in groups,
        )
    )
    callers = await edge.principals.list_callers(account_id) if pb.GROUP_BY_CALLER in groups else {}
    found = _by_bucket(rows, callers, keeps_keys=pb.GROUP_BY_KEY in groups)
    credit = await books.balance(account_id, principal.key_id)
    starts_s = range(period.start_s, period.page_end_s, period.width.seconds)
    return pb.GetUsageResponse(
        buckets=[
            pb.UsageBucket(
                start_time=Timestamp(seconds=start_s),
                end_time=Timestamp(seconds=start_s + period.width.seconds),
                rows=found.get(start_s, ()),
            )
            for start_s in starts_s
        ],
        next_page_token=str(period.page_end_s) if period.page_end_s < period.end_s else "",
        balance_nanos=credit.balance.balance_nanos,
        owed_nanos=credit.balance.owed_nanos,
        spend_limits=[limit for spend in credit.spends for limit in _spend_limits(spend)],
    )


def _by_bucket(
    rows: metering.ListUsageResponse, callers: Mapping[str, str], *, keeps_keys: bool
) -> dict[int, list[pb.UsageRow]]:
    """Returns the rows by the start of their buckets; unless keys are asked for, those of one caller are added up."""
    found: dict[int, dict[tuple[str, str, str], pb.UsageRow]] = {}
    for row in rows.rows:
        caller, key_id = callers.get(row.key_id, ""), row.key_id if keeps_keys else ""
        sums = found.setdefault(row.start_time.seconds, {}).setdefault(
            (row.class_id, key_id, caller), pb.UsageRow(model=row.class_id, key_id=key_id, caller=caller)
        )
        sums.requests += row.requests
        add_usage(sums.usage, row.usage)
        sums.usage.cost_nanos += row.cost_nanos
    return {start_s: [*grouped.values()] for start_s, grouped in found.items()}


def _spend_limits(spend: Spend) -> Iterator[pb.SpendLimit]:
    """Yields the limits of the account or of the key, and what new requests may use of each."""
    periods: tuple[tuple[str, pb.SpendPeriod.ValueType, int, Timestamp | None], ...] = (
        ("day_nanos", pb.SPEND_PERIOD_DAY, spend.day_spent_nanos, spend.day_end_time),
        ("month_nanos", pb.SPEND_PERIOD_MONTH, spend.month_spent_nanos, spend.month_end_time),
        ("total_nanos", pb.SPEND_PERIOD_TOTAL, spend.total_spent_nanos, None),
    )
    for field, period, spent_nanos, end_time in periods:
        if spend.limits.HasField(field):  # type: ignore[arg-type]
            limit_nanos = getattr(spend.limits, field)
            yield pb.SpendLimit(
                key_id=spend.key_id,
                period=period,
                limit_nanos=limit_nanos,
                spent_nanos=spent_nanos,
                left_nanos=max(0, limit_nanos - spent_nanos - spend.held_nanos),
                reset_time=end_time,
            )
