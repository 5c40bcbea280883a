"""GET /v1/usage: what the key's own account used, in buckets of hours or days, and the receipt of one request."""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from edge.api.access import Edge, UsageKey
from edge.api.description import REQUEST_ID, errors
from edge.reports.receipt import get_request
from edge.reports.usage import LATEST_S, PageFields, get_usage
from legato_protos.chat.v1 import chat_pb2 as pb
from services.chassis.errors import Reason
from services.chassis.money import format_usd
from services.rules.usage import COLUMNS, named

router = APIRouter(prefix="/v1/usage", tags=["Usage"])


def _split_at_commas(given: object) -> object:
    return [name.strip() for value in given for name in value.split(",")] if isinstance(given, list) else given


_Seconds = Annotated[int, Field(ge=0, le=LATEST_S)] | SkipJsonSchema[None]
_Groups = Annotated[list[Literal["model", "key", "caller"]], BeforeValidator(_split_at_commas)]


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


Count = Annotated[int, Field(ge=0)]
UnixSeconds = Annotated[int, Field(ge=0, description="Seconds since 1970.")]
Usd = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$", description="Dollars, exact.", examples=["0.00000257"])]


if TYPE_CHECKING:

    class TokenCounts(BaseModel):
        pass

else:
    TokenCounts = create_model("TokenCounts", **dict.fromkeys(COLUMNS, (Count, ...)))


class Cost(BaseModel):
    cost_nanos: int
    cost_usd: Usd


# Parts of what is described below. Fields are in the order of the bases, the last one first.
class _UsageGroup(BaseModel):
    object: Literal["usage.result"] = "usage.result"
    model: str | None
    key_id: str | None
    caller: str | None
    requests: Count


class UsageResult(Cost, TokenCounts, _UsageGroup):
    """Usage in one bucket. `model`, `key_id` and `caller` are null unless grouped by them. Requests with a key have no
    caller."""


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


class _RequestState(BaseModel):
    object: Literal["usage.request"] = "usage.request"
    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$", examples=[REQUEST_ID])]
    state: Literal["running", "settled", "void", "swept"] | None
    model: str | None
    key_id: str | None
    caller: Annotated[
        str | None, Field(description="The internal program that called; null: it was called with a key.")
    ]
    created: UnixSeconds | None
    ended: UnixSeconds | None
    end: str | None
    basis: str | None


class UsageRequest(Cost, TokenCounts, _RequestState):
    """The state and cost of one request."""

    held_nanos: Count
    price_version: Count | None
    routes_version: Annotated[
        str | None, Field(description="The version of the service's routes that chose the model, if it is known.")
    ]
    first_token_ms: Annotated[
        Count | None,
        Field(description="From the request's arrival until its streamed answer began, if that is known."),
    ]
    duration_ms: Annotated[
        Count | None, Field(description="From the request's arrival until its answer ended, if that is known.")
    ]
    api: Annotated[
        Literal["chat", "messages", "responses", "grpc"] | None,
        Field(description="By which the request came, if that is known."),
    ]


_WIDTHS: Final = {"1h": pb.BUCKET_WIDTH_HOUR, "1d": pb.BUCKET_WIDTH_DAY}
_FIELDS: Final = PageFields("limit", "page", "next_page")


@router.get("", summary="Read tokens and cost of the key's own account", operation_id="getUsage", responses=errors())
async def read_usage(query: Annotated[UsageQuery, Query()], principal: UsageKey, edge: Edge) -> UsagePage:
    """Buckets are whole, so the first and the last may extend beyond the requested period. The default is the last 24
    hours."""
    request = pb.GetUsageRequest(
        start_time=None if query.start_time is None else Timestamp(seconds=query.start_time),
        end_time=None if query.end_time is None else Timestamp(seconds=query.end_time),
        bucket_width=_WIDTHS[query.bucket_width],
        group_by=[
            pb.GroupBy.Value(f"GROUP_BY_{name.upper()}") for name in (*query.group_by, *query.bracketed_group_by)
        ],
        page_size=query.limit or 0,
        page_token=query.page or "",
    )
    page = await get_usage(edge, principal, request, _FIELDS)
    return UsagePage(
        data=[
            UsageBucket(
                start_time=bucket.start_time.seconds,
                end_time=bucket.end_time.seconds,
                results=[_to_result(row) for row in bucket.rows],
            )
            for bucket in page.buckets
        ],
        has_more=bool(page.next_page_token),
        next_page=page.next_page_token or None,
        balance_usd=format_usd(page.balance_nanos),
        owed_usd=format_usd(page.owed_nanos),
        spend_limits=[_to_spend_limit(limit) for limit in page.spend_limits],
    )


def _to_spend_limit(limit: pb.SpendLimit) -> SpendLimit:
    return SpendLimit(
        key_id=limit.key_id or None,
        period=_word(pb.SpendPeriod.Name(limit.period), "SPEND_PERIOD_"),
        limit_usd=format_usd(limit.limit_nanos),
        spent_usd=format_usd(limit.spent_nanos),
        left_usd=format_usd(limit.left_nanos),
        resets_at=limit.reset_time.seconds if limit.HasField("reset_time") else None,
    )


def _to_result(row: pb.UsageRow) -> UsageResult:
    return UsageResult(
        model=row.model or None,
        key_id=row.key_id or None,
        caller=row.caller or None,
        requests=row.requests,
        **_charge(row.usage),
    )


def _charge(usage: pb.Usage) -> dict[str, Any]:
    """Returns the fields of tokens and cost, which a bucket and a request have in common."""
    return {**named(usage), "cost_nanos": usage.cost_nanos, "cost_usd": format_usd(usage.cost_nanos)}


@router.get(
    "/requests/{request_id}",
    summary="Get the state and cost of one request",
    operation_id="getUsageRequest",
    responses=errors(Reason.NOT_FOUND),
)
async def read_request(
    request_id: Annotated[
        str, Path(description="The `x-request-id` of a response, or the id of its completion.", examples=[REQUEST_ID])
    ],
    principal: UsageKey,
    edge: Edge,
) -> UsageRequest:
    """An account sees only its own requests."""
    found = await get_request(edge, principal, request_id)
    return UsageRequest(
        id=found.request_id,
        state=_word(pb.RequestState.Name(found.state), "REQUEST_STATE_"),
        model=found.model or None,
        key_id=found.key_id or None,
        caller=found.caller or None,
        created=found.create_time.seconds if found.HasField("create_time") else None,
        ended=found.end_time.seconds if found.HasField("end_time") else None,
        end=_word(pb.RequestEnd.Name(found.end), "REQUEST_END_"),
        basis=_word(pb.UsageBasis.Name(found.basis), "USAGE_BASIS_"),
        **_charge(found.usage),
        held_nanos=found.held_nanos,
        price_version=found.price_version or None,
        routes_version=found.routes_version or None,
        first_token_ms=found.first_token_ms if found.HasField("first_token_ms") else None,
        duration_ms=found.duration_ms if found.HasField("duration_ms") else None,
        api=_word(pb.RequestApi.Name(found.api), "REQUEST_API_"),
    )


def _word(name: str, prefix: str) -> Any:
    word = name.removeprefix(prefix).lower()
    return None if word == "unspecified" else word
