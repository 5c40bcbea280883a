"""GET /v1/usage: what the key's own account used, in buckets of hours or days."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from google.protobuf.timestamp_pb2 import Timestamp

from edge.backends.auth import Principal
from edge.billing.metering import Metering
from protos.metering.v1 import metering_pb2 as pb
from protos.metering.v1.spend_limits_pb2 import Spend
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd
from services.chassis.timing.deadlines import Clock

HOUR_S = 3600
DAY_S = 24 * HOUR_S
# The end of the year 9999.
LATEST_S = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Width:
    seconds: int
    bucket: "pb.UsageBucket.ValueType"
    # The most buckets of a page, which is also the default.
    most: int


WIDTHS = {"1h": Width(HOUR_S, pb.USAGE_BUCKET_HOUR, 168), "1d": Width(DAY_S, pb.USAGE_BUCKET_DAY, 31)}
GROUPS = ("model", "key")
PARAMETERS = frozenset({"start_time", "end_time", "bucket_width", "group_by", "group_by[]", "limit", "page"})


@dataclass(frozen=True, slots=True)
class UsageQuery:
    width: Width
    group_by: frozenset[str]
    # The page's first bucket, and the end of all of them.
    start_s: int
    end_s: int
    limit: int

    @property
    def page_end_s(self) -> int:
        return min(self.end_s, self.start_s + self.limit * self.width.seconds)


def parse_query(parameters: Mapping[str, list[str]], now_s: int) -> UsageQuery:
    unknown = parameters.keys() - PARAMETERS
    if unknown:
        raise _invalid(f"Unknown parameter. Usage accepts {', '.join(sorted(PARAMETERS - {'group_by[]'}))}.", None)
    given_width = _single(parameters, "bucket_width")
    width = WIDTHS.get("1h" if given_width is None else given_width)
    if width is None:
        raise _invalid("bucket_width must be 1h or 1d.", "bucket_width")
    given_start_s = _integer(parameters, "start_time", 0, LATEST_S)
    given_end_s = _integer(parameters, "end_time", 0, LATEST_S)
    end_s = now_s if given_end_s is None else given_end_s
    start_s = max(0, end_s - DAY_S) if given_start_s is None else given_start_s
    if start_s >= end_s:
        raise _invalid("start_time must be before end_time.", "start_time")
    limit = _integer(parameters, "limit", 1, width.most)
    # Buckets are whole: the first and the last may extend beyond the requested period.
    first_s = start_s // width.seconds * width.seconds
    last_s = -(-end_s // width.seconds) * width.seconds
    page_s = _integer(parameters, "page", first_s, last_s)
    if page_s is not None and page_s % width.seconds:
        raise _invalid("page must be the next_page of a response to the same query.", "page")
    return UsageQuery(
        width=width,
        group_by=_groups(parameters),
        start_s=first_s if page_s is None else page_s,
        end_s=last_s,
        limit=limit or width.most,
    )


async def get_usage(*, metering: Metering, clock: Clock, principal: Principal, query_string: bytes) -> dict[str, Any]:
    parameters = parse_qs(query_string.decode("latin-1"), keep_blank_values=True)
    query = parse_query(parameters, int(clock.now().timestamp()))
    await metering.caught_up(principal.account_id)
    rows = await metering.usage(
        pb.ListUsageRequest(
            account_id=principal.account_id,
            start_time=Timestamp(seconds=query.start_s),
            end_time=Timestamp(seconds=query.page_end_s),
            bucket=query.width.bucket,
            group_by_key="key" in query.group_by,
            group_by_class="model" in query.group_by,
        )
    )
    results: dict[int, list[dict[str, Any]]] = {}
    for row in rows.rows:
        results.setdefault(row.start_time.seconds, []).append(_result(row))
    has_more = query.page_end_s < query.end_s
    told = await metering.balance(principal.account_id, principal.key_id)
    return {
        "object": "page",
        "data": [
            {
                "object": "bucket",
                "start_time": start_s,
                "end_time": start_s + query.width.seconds,
                "results": results.get(start_s, []),
            }
            for start_s in range(query.start_s, query.page_end_s, query.width.seconds)
        ],
        "has_more": has_more,
        "next_page": str(query.page_end_s) if has_more else None,
        "balance_usd": format_usd(told.balance.balance_nanos),
        "owed_usd": format_usd(told.balance.owed_nanos),
        "spend_limits": [limit for spend in told.spends for limit in _spend_limits(spend)],
    }


def _spend_limits(spend: Spend) -> Iterator[dict[str, Any]]:
    """Yields the limits of the account or of the key, and what new requests may use of each."""
    for period, spent_nanos, end_s in (
        ("day", spend.day_spent_nanos, spend.day_end_time.seconds),
        ("month", spend.month_spent_nanos, spend.month_end_time.seconds),
        ("total", spend.total_spent_nanos, None),
    ):
        if spend.limits.HasField(f"{period}_nanos"):  # type: ignore[arg-type]
            limit_nanos = getattr(spend.limits, f"{period}_nanos")
            left_nanos = max(0, limit_nanos - spent_nanos - spend.held_nanos)
            yield {
                "object": "spend_limit",
                "key_id": spend.key_id or None,
                "period": period,
                "limit_usd": format_usd(limit_nanos),
                "spent_usd": format_usd(spent_nanos),
                "left_usd": format_usd(left_nanos),
                "resets_at": end_s,
            }


def _result(row: pb.UsageRow) -> dict[str, Any]:
    return {
        "object": "usage.result",
        "model": row.class_id or None,
        "key_id": row.key_id or None,
        "requests": row.requests,
        "prompt_tokens": row.usage.prompt_tokens,
        "cached_tokens": row.usage.cached_tokens,
        "completion_tokens": row.usage.completion_tokens,
        "cost_nanos": row.cost_nanos,
        "cost_usd": format_usd(row.cost_nanos),
    }


def _groups(parameters: Mapping[str, list[str]]) -> frozenset[str]:
    """Parses `group_by=model,key`, `group_by=model&group_by=key`, or brackets as OpenAI's clients write arrays."""
    given = [*parameters.get("group_by", []), *parameters.get("group_by[]", [])]
    asked = {name.strip() for value in given for name in value.split(",")}
    if not asked <= set(GROUPS):
        raise _invalid(f"group_by accepts {' and '.join(GROUPS)}.", "group_by")
    return frozenset(asked)


def _single(parameters: Mapping[str, list[str]], name: str) -> str | None:
    values = parameters.get(name, [])
    if len(values) > 1:
        raise _invalid(f"{name} must be given only once.", name)
    return values[0] if values else None


def _integer(parameters: Mapping[str, list[str]], name: str, least: int, most: int) -> int | None:
    value = _single(parameters, name)
    if value is None:
        return None
    if not (value.isascii() and value.isdigit() and len(value) < 20) or not least <= int(value) <= most:
        raise _invalid(f"{name} must be a whole number from {least} to {most}.", name)
    return int(value)


def _invalid(message: str, param: str | None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)


# The prefix of a completion's id, before the id of its request.
COMPLETION_PREFIX = "chatcmpl-"
_REQUEST_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


async def get_usage_request(*, metering: Metering, principal: Principal, request_id: str) -> dict[str, Any]:
    """Finds a request by its `x-request-id` or the id of its completion. An account sees only its own requests."""
    own_id = request_id.removeprefix(COMPLETION_PREFIX)
    if not _REQUEST_ID.fullmatch(own_id):
        raise LegatoError(Reason.NOT_FOUND, "There is no such request.")
    await metering.caught_up(principal.account_id)
    found = await metering.request(pb.GetRequestRequest(account_id=principal.account_id, request_id=own_id))
    return {
        "object": "usage.request",
        "id": found.request_id,
        "state": _word(pb.RequestState.Name(found.state), "REQUEST_STATE"),
        "model": found.class_id or None,
        "key_id": found.key_id or None,
        "created": found.reserve_time.seconds if found.HasField("reserve_time") else None,
        "ended": found.end_time.seconds if found.HasField("end_time") else None,
        "end": _word(pb.End.Name(found.end), "END"),
        "basis": _word(pb.Basis.Name(found.basis), "BASIS"),
        "prompt_tokens": found.usage.prompt_tokens,
        "cached_tokens": found.usage.cached_tokens,
        "completion_tokens": found.usage.completion_tokens,
        "cost_nanos": found.charged_nanos,
        "cost_usd": format_usd(found.charged_nanos),
        "held_nanos": found.held_nanos,
        "price_version": found.price_version or None,
    }


def _word(name: str, prefix: str) -> str | None:
    word = name.removeprefix(f"{prefix}_").lower()
    return None if word == "unspecified" else word
