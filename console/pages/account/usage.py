"""Usage of a period: a chart by class, key or member, the same figures as a table, and a file."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from starlette.responses import Response

from console.account.key_names import KeyNames, read_key_names
from console.display.charts import CostChart, cost_chart
from console.display.words import TRANSLATIONS, time_of
from console.services import LONG_READ_TIMEOUT_S, READ_TIMEOUT_S
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import CHOICES, Period, period_in, stamp_of
from console.web.visit import Visit, with_query
from protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd

_ = TRANSLATIONS.gettext

GROUPINGS: Final = {"class": _("Class"), "key": _("Key"), "member": _("Member")}
# More would be no table to read: the file has all.
ROWS_MOST: Final = 100
FILE_SPAN: Final = timedelta(days=31)
COLUMNS: Final = (
    "start", "time_zone", "class", "key_id", "key_name", "created_by", "requests", "prompt_tokens", "cached_tokens",
    "completion_tokens", "cost_usd", "cost_nanos",
)  # fmt: skip


@dataclass(slots=True)
class Sums:
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_nanos: int = 0

    def add(self, row: pb.UsageRow) -> None:
        self.requests += row.requests
        self.prompt_tokens += row.usage.prompt_tokens
        self.cached_tokens += row.usage.cached_tokens
        self.completion_tokens += row.usage.completion_tokens
        self.cost_nanos += row.cost_nanos


@dataclass(frozen=True, slots=True)
class UsageChoice:
    """The choice that an address makes."""

    period: Period
    by: str
    # Of whose keys: "" for all, "mine", or the id of one.
    keys: str

    @property
    def query(self) -> dict[str, str]:
        return {**self.period.query, "by": self.by, "keys": self.keys or "all"}


@dataclass(frozen=True, slots=True)
class Report:
    total: Sums
    # By the name of a class, key or member, the most expensive first.
    groups: list[tuple[str, Sums]]
    # By hour, day or month, the newest first; those that have any.
    columns: list[tuple[str, Sums]]
    chart: CostChart


async def show(visit: Visit) -> Response:
    choice = _choice_in(visit)
    names_task = asyncio.create_task(read_key_names(visit))
    try:
        rows = await _read_rows(visit, choice)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        rows = None
    names = await names_task
    report = None if rows is None else _report(_chosen(rows, choice, names, visit), choice, names)
    return visit.render(
        "usage.html",
        choice=choice,
        period=choice.period,
        report=report,
        names=names,
        periods=CHOICES,
        groupings=GROUPINGS,
        rows_most=ROWS_MOST,
        file_path=with_query("/usage.csv", choice.query),
    )


async def download(visit: Visit) -> Response:
    choice = _choice_in(visit)
    period, names = choice.period, await read_key_names(visit)
    name = f"legato-usage-{period.first}-{period.last}.csv"
    return csv_response(visit, name, COLUMNS, _file_rows(visit, choice, names))


def _choice_in(visit: Visit) -> UsageChoice:
    query = visit.request.query_params
    by = query.get("by", "class")
    # Members come for what they use themselves; owners and viewers for the account.
    keys = query.get("keys") or ("mine" if visit.who.has_own_keys_only else "all")
    return UsageChoice(
        period_in(query, visit.zone, visit.now), by if by in GROUPINGS else "class", "" if keys == "all" else keys
    )


async def _read_rows(visit: Visit, choice: UsageChoice) -> list[pb.UsageRow]:
    period = choice.period
    is_by_class = choice.by == "class"
    return await _list_usage(
        visit,
        pb.ListUsageRequest(
            account_id=visit.who.account_id,
            start_time=stamp_of(period.start),
            end_time=stamp_of(period.end),
            bucket=pb.USAGE_BUCKET_HOUR if period.unit == "hour" else pb.USAGE_BUCKET_DAY,
            group_by_class=is_by_class,
            group_by_key=bool(choice.keys) or not is_by_class,
            time_zone=period.zone.name,
        ),
    )


async def _list_usage(
    visit: Visit, request: pb.ListUsageRequest, timeout_s: float = READ_TIMEOUT_S
) -> list[pb.UsageRow]:
    token = await visit.recent_token()
    answer = await visit.services.metering.read(lambda stubs: stubs.metering.ListUsage, request, token, timeout_s)
    return list(answer.rows)


def _chosen(rows: list[pb.UsageRow], choice: UsageChoice, names: KeyNames, visit: Visit) -> list[pb.UsageRow]:
    if not choice.keys:
        return rows
    keys = set(names.made_by(visit.who.user.user_id)) if choice.keys == "mine" else {choice.keys}
    return [row for row in rows if row.key_id in keys]


def _report(rows: list[pb.UsageRow], choice: UsageChoice, names: KeyNames) -> Report:
    total = Sums()
    groups: defaultdict[str, Sums] = defaultdict(Sums)
    columns: defaultdict[date, Sums] = defaultdict(Sums)
    costs: defaultdict[str, defaultdict[date, int]] = defaultdict(lambda: defaultdict(int))
    period, group_of = choice.period, _grouping(choice.by, names)
    for row in rows:
        group, column = group_of(row), period.column_of(row.start_time)
        total.add(row)
        groups[group].add(row)
        columns[column].add(row)
        costs[group][column] += row.cost_nanos
    shown = period.columns
    return Report(
        total,
        sorted(groups.items(), key=lambda item: (-item[1].cost_nanos, item[0])),
        [(period.title_of(column), columns[column]) for column in reversed(shown) if column in columns],
        cost_chart(shown, costs, [period.title_of(column) for column in shown]),
    )


def _grouping(by: str, names: KeyNames) -> Callable[[pb.UsageRow], str]:
    if by == "class":
        return lambda row: row.class_id
    if by == "member":
        return lambda row: names.maker(row.key_id)
    return lambda row: names.name(row.key_id)


async def _file_rows(visit: Visit, choice: UsageChoice, names: KeyNames) -> AsyncIterator[Row]:
    period = choice.period
    start, span = period.start, FILE_SPAN
    while start < period.end:
        # A local midnight again, whatever the clocks do in between.
        until = min(period.end, period.zone.midnight(period.zone.today(start) + span))
        request = pb.ListUsageRequest(
            account_id=visit.who.account_id,
            start_time=stamp_of(start),
            end_time=stamp_of(until),
            bucket=pb.USAGE_BUCKET_HOUR if period.unit == "hour" else pb.USAGE_BUCKET_DAY,
            group_by_class=True,
            group_by_key=True,
            time_zone=period.zone.name,
        )
        try:
            rows = await _list_usage(visit, request, LONG_READ_TIMEOUT_S)
        except LegatoError as error:
            is_too_much = error.reason is Reason.REQUEST_INVALID and error.param == "start_time"
            if not is_too_much or span <= timedelta(days=1):
                raise
            span //= 2
            continue
        for row in _chosen(rows, choice, names, visit):
            yield _file_row(row, period, names)
        start = until


def _file_row(row: pb.UsageRow, period: Period, names: KeyNames) -> Row:
    local = time_of(row.start_time).astimezone(period.zone.info)
    usage = row.usage
    return (
        local.isoformat(),
        period.zone.name or "UTC",
        row.class_id,
        row.key_id,
        text_cell(names.name(row.key_id)),
        text_cell(names.maker(row.key_id)),
        row.requests,
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.completion_tokens,
        format_usd(row.cost_nanos),
        row.cost_nanos,
    )
