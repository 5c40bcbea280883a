"""Reports of what was used."""

from collections.abc import Iterable

from protos.metering.v1 import metering_pb2


def usage_of(
    rows: Iterable[metering_pb2.UsageRow], request: metering_pb2.ListUsageRequest
) -> metering_pb2.ListUsageResponse:
    """Adds up rows by time, key and class, as metering does."""
    sums: dict[tuple[int, str, str], metering_pb2.UsageRow] = {}
    for row in rows:
        if request.key_ids and row.key_id not in request.key_ids:
            continue
        is_whole = request.bucket == metering_pb2.USAGE_BUCKET_PERIOD
        start = request.start_time if is_whole else row.start_time
        key_id, class_id = row.key_id if request.group_by_key else "", row.class_id if request.group_by_class else ""
        added = sums.setdefault(
            (start.seconds, key_id, class_id),
            metering_pb2.UsageRow(start_time=start, key_id=key_id, class_id=class_id),
        )
        _add_usage(added, row)
    if not request.top_keys:
        return metering_pb2.ListUsageResponse(rows=[sums[each] for each in sorted(sums)])
    ranked = sorted(sums.values(), key=lambda row: (-row.cost_nanos, row.key_id))
    shown, rest = ranked[: request.top_keys], ranked[request.top_keys :]
    others = metering_pb2.UsageRow(start_time=request.start_time)
    for row in rest:
        _add_usage(others, row)
    return metering_pb2.ListUsageResponse(rows=[*shown, *([others] if rest else [])], other_keys=len(rest))


def _add_usage(sums: metering_pb2.UsageRow, row: metering_pb2.UsageRow) -> None:
    sums.requests += row.requests
    sums.cost_nanos += row.cost_nanos
    sums.usage.prompt_tokens += row.usage.prompt_tokens
    sums.usage.cached_tokens += row.usage.cached_tokens
    sums.usage.completion_tokens += row.usage.completion_tokens
