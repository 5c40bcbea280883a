"""GET /v1/usage: what the key's own account used, in buckets of hours or days, and the receipt of one request."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Path, Query
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from edge.api.access import Edge, UsageKey
from edge.api.description import REQUEST_ID, errors
from edge.chat.endpoint import COMPLETION_PREFIX
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.spend_limits_pb2 import Spend
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
# The end of the year 9999.
LATEST_S: Final = 253_402_300_799

router = APIRouter(prefix="/v1/usage", tags=["Usage"])


class Width(NamedTuple):
    seconds: int
    bucket: "pb.UsageBucket.ValueType"
    # The most buckets of a page, which is also the default.
    most: int


WIDTHS: Final = {"1h": Width(HOUR_S, pb.USAGE_BUCKET_HOUR, 168), "1d": Width(DAY_S, pb.USAGE_BUCKET_DAY, 31)}


def _split_at_commas(given: Any) -> Any:
    return [name.strip() for value in given for name in value.split(",")] if isinstance(given, list) else given


_Seconds = Annotated[int, Field(ge=0, le=LATEST_S)] | SkipJsonSchema[None]
_Groups = Annotated[list[Literal["model", "key"]], BeforeValidator(_split_at_commas)]


class UsageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    start_time: _Seconds = Field(None, description="Seconds since 1970.")
    end_time: _Seconds = Field(None, description="Seconds since 1970; after `start_time`.")
    bucket_width: Literal["1h", "1d"] = Field("1h", description="An hour or a day, in UTC.")
    group_by: _Groups = Field([], description="Repeated, separated by commas, or as `group_by[]`.")
    # As OpenAI's clients write arrays.
    bracketed_group_by: _Groups = Field([], alias="group_by[]", description="The same as `group_by`.")
    limit: Annotated[int, Field(ge=1, le=168)] | SkipJsonSchema[None] = Field(
        None, description="Buckets per page. The maximum, which is also the default, is 168 hours or 31 days."
    )
    page: Annotated[str, Field(pattern="^[0-9]{1,12}$")] | SkipJsonSchema[None] = Field(
        None, description="The `next_page` of the previous page."
    )


class UsagePeriod(NamedTuple):
    """The buckets that a query asks for: where its page begins and ends, and the end of all pages."""

    width: Width
    start_s: int
    page_end_s: int
    end_s: int


def period_of(query: UsageQuery, now_s: int) -> UsagePeriod:
    width = WIDTHS[query.bucket_width]
    end_s = now_s if query.end_time is None else query.end_time
    start_s = max(0, end_s - DAY_S) if query.start_time is None else query.start_time
    if start_s >= end_s:
        raise _invalid("start_time must be before end_time.", "start_time")
    limit = width.most if query.limit is None else query.limit
    if limit > width.most:
        raise _invalid(f"limit must be a whole number from 1 to {width.most}.", "limit")
    # Buckets are whole: the first and the last may extend beyond the requested period.
    first_s = start_s // width.seconds * width.seconds
    last_s = -(-end_s // width.seconds) * width.seconds
    page_s = first_s if query.page is None else int(query.page)
    if page_s % width.seconds or not first_s <= page_s <= last_s:
        raise _invalid("page must be the next_page of a response to the same query.", "page")
    return UsagePeriod(width, page_s, min(last_s, page_s + limit * width.seconds), last_s)


def _invalid(message: str, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)


Count = Annotated[int, Field(ge=0)]
UnixSeconds = Annotated[int, Field(ge=0, description="Seconds since 1970.")]
Usd = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$", description="Dollars, exact.", examples=["0.00000257"])]


class UsageResult(BaseModel):
    """Usage in one bucket. `model` and `key_id` are null unless grouped by them."""

    object: Literal["usage.result"] = "usage.result"
    model: str | None
    key_id: str | None
    requests: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    cost_nanos: int
    cost_usd: Usd


class UsageBucket(BaseModel):
    """An hour or a day, in UTC."""

    object: Literal["bucket"] = "bucket"
    start_time: UnixSeconds
    end_time: UnixSeconds
    results: list[UsageResult]


class SpendLimit(BaseModel):
    """A spend limit of the account, or of the key if it has an id, and what new requests may use of it."""

    object: Literal["spend_limit"] = "spend_limit"
    key_id: str | None
    period: Literal["day", "month", "total"]
    limit_usd: Usd
    spent_usd: Usd
    left_usd: Usd
    resets_at: UnixSeconds | None


class UsagePage(BaseModel):
    """Usage of the account that owns the key, its remaining credit, and the spend limits that apply to the key."""

    object: Literal["page"] = "page"
    data: list[UsageBucket]
    has_more: bool
    next_page: Annotated[str, Field(pattern="^[0-9]+$")] | None
    balance_usd: Usd
    owed_usd: Usd
    spend_limits: list[SpendLimit]


class UsageRequest(BaseModel):
    """The state and cost of one request."""

    object: Literal["usage.request"] = "usage.request"
    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$", examples=[REQUEST_ID])]
    state: Literal["running", "settled", "void", "swept"] | None
    model: str | None
    key_id: str | None
    created: UnixSeconds | None
    ended: UnixSeconds | None
    end: str | None
    basis: str | None
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    cost_nanos: int
    cost_usd: Usd
    held_nanos: Count
    price_version: Count | None


@router.get("", summary="Read tokens and cost of the key's own account", operation_id="getUsage", responses=errors())
async def get_usage(query: Annotated[UsageQuery, Query()], principal: UsageKey, edge: Edge) -> UsagePage:
    """Buckets are whole, so the first and the last may extend beyond the requested period. The default is the last 24
    hours."""
    metering = edge.metering
    period = period_of(query, int(edge.clock.now().timestamp()))
    groups = {*query.group_by, *query.bracketed_group_by}
    await metering.caught_up(principal.account_id)
    rows = await metering.usage(
        pb.ListUsageRequest(
            account_id=principal.account_id,
            start_time=Timestamp(seconds=period.start_s),
            end_time=Timestamp(seconds=period.page_end_s),
            bucket=period.width.bucket,
            group_by_key="key" in groups,
            group_by_class="model" in groups,
        )
    )
    results: dict[int, list[UsageResult]] = {}
    for row in rows.rows:
        results.setdefault(row.start_time.seconds, []).append(_to_result(row))
    told = await metering.balance(principal.account_id, principal.key_id)
    has_more = period.page_end_s < period.end_s
    return UsagePage(
        data=[
            UsageBucket(start_time=start_s, end_time=start_s + period.width.seconds, results=results.get(start_s, []))
            for start_s in range(period.start_s, period.page_end_s, period.width.seconds)
        ],
        has_more=has_more,
        next_page=str(period.page_end_s) if has_more else None,
        balance_usd=format_usd(told.balance.balance_nanos),
        owed_usd=format_usd(told.balance.owed_nanos),
        spend_limits=[limit for spend in told.spends for limit in _spend_limits(spend)],
    )


def _spend_limits(spend: Spend) -> Iterator[SpendLimit]:
    """Yields the limits of the account or of the key, and what new requests may use of each."""
    periods: tuple[tuple[Literal["day", "month", "total"], int, int | None], ...] = (
        ("day", spend.day_spent_nanos, spend.day_end_time.seconds),
        ("month", spend.month_spent_nanos, spend.month_end_time.seconds),
        ("total", spend.total_spent_nanos, None),
    )
    for period, spent_nanos, end_s in periods:
        if spend.limits.HasField(f"{period}_nanos"):  # type: ignore[arg-type]
            limit_nanos = getattr(spend.limits, f"{period}_nanos")
            yield SpendLimit(
                key_id=spend.key_id or None,
                period=period,
                limit_usd=format_usd(limit_nanos),
                spent_usd=format_usd(spent_nanos),
                left_usd=format_usd(max(0, limit_nanos - spent_nanos - spend.held_nanos)),
                resets_at=end_s,
            )


def _to_result(row: pb.UsageRow) -> UsageResult:
    return UsageResult(
        model=row.class_id or None,
        key_id=row.key_id or None,
        requests=row.requests,
        **_charge(row.usage, row.cost_nanos),
    )


def _charge(usage: Usage, cost_nanos: int) -> dict[str, Any]:
    """Returns the fields of tokens and cost, which a bucket and a request have in common."""
    tokens = {name: getattr(usage, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    return {**tokens, "cost_nanos": cost_nanos, "cost_usd": format_usd(cost_nanos)}


_REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)


@router.get(
    "/requests/{request_id}",
    summary="Get the state and cost of one request",
    operation_id="getUsageRequest",
    responses=errors(Reason.NOT_FOUND),
)
async def get_usage_request(
    request_id: Annotated[
        str, Path(description="The `x-request-id` of a response, or the id of its completion.", examples=[REQUEST_ID])
    ],
    principal: UsageKey,
    edge: Edge,
) -> UsageRequest:
    """An account sees only its own requests."""
    own_id = request_id.removeprefix(COMPLETION_PREFIX)
    if not _REQUEST_ID.fullmatch(own_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such request.")
    await edge.metering.caught_up(principal.account_id)
    found = await edge.metering.request(pb.GetRequestRequest(account_id=principal.account_id, request_id=own_id))
    return UsageRequest(
        id=found.request_id,
        state=_word(pb.RequestState.Name(found.state), "REQUEST_STATE"),
        model=found.class_id or None,
        key_id=found.key_id or None,
        created=found.reserve_time.seconds if found.HasField("reserve_time") else None,
        ended=found.end_time.seconds if found.HasField("end_time") else None,
        end=_word(pb.End.Name(found.end), "END"),
        basis=_word(pb.Basis.Name(found.basis), "BASIS"),
        **_charge(found.usage, found.charged_nanos),
        held_nanos=found.held_nanos,
        price_version=found.price_version or None,
    )


def _word(name: str, prefix: str) -> Any:
    word = name.removeprefix(f"{prefix}_").lower()
    return None if word == "unspecified" else word
