"""Usage of a period: a chart by class, key or member, the same figures as a table, and a file."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Final

from starlette.responses import Response

from console.account.key_names import KeyNames, ReportKeys, add_key_names, read_key_names, read_report_keys
from console.account.usage import chart_of, usage_request
from console.display.charts import MOST_SERIES, REST, CostChart, Series, free_colour
from console.display.language import N_, _, ngettext
from console.display.words import time_of
from console.services import LONG_READ_TIMEOUT_S, READ_TIMEOUT_S, if_available
from console.web.csv_files import Row, csv_response, text_cell
from console.web.periods import CHOICES, Period, period_in, stamp_of
from console.web.visit import Visit, with_query
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import format_usd
from services.rules.usage import add_usage, named

GROUPINGS: Final = {"class": N_("Class"), "key": N_("Key"), "member": N_("Member")}
# More would be no table to read: the file has all.
ROWS_MOST: Final = 50
# Of an account with more, only the most expensive keys are told to be whose.
MEMBER_KEYS_MOST: Final = 100
# Tells keys of the same name apart.
ID_END: Final = 4
FILE_SPAN: Final = timedelta(days=31)


@dataclass(slots=True)
class Sums:
    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_nanos: int = 0

    def add(self, row: pb.UsageRow) -> None:
        self.requests += row.requests
        add_usage(self.usage, row.usage)
        self.cost_nanos += row.cost_nanos


@dataclass(frozen=True, slots=True)
class UsageChoice:
    """The choice that an address makes."""

    period: Period
    by: str
    keys: ReportKeys

    @property
    def query(self) -> dict[str, str]:
        return {**self.period.query, "by": self.by, "keys": self.keys.chosen or "all"}


@dataclass(frozen=True, slots=True)
class Report:
    total: Sums
    # By the name of a class, key or member, the most expensive first; then all other keys as one.
    groups: list[tuple[str, Sums]]
    # By hour, day or month, the newest first; those that have any.
    columns: list[tuple[str, Sums]]
    chart: CostChart
    # How many keys the last group adds up, if it is that of all others.
    other_keys: int


async def show(visit: Visit) -> Response:
    choice = await _choice_in(visit)
    found = await if_available(_read_report(visit, choice))
    report, names = found or (None, await read_key_names(visit, [choice.keys.chosen]))
    return visit.render(
        "usage.html",
        choice=choice,
        period=choice.period,
        report=report,
        names=names,
        periods=CHOICES,
        groupings=GROUPINGS,
        file_path=with_query("/usage.csv", choice.query),
    )


async def download(visit: Visit) -> Response:
    choice = await _choice_in(visit)
    name = f"legato-usage-{choice.period.first}-{choice.period.last}.csv"
    return await csv_response(visit, name, *usage_file(visit, choice))


def usage_file(visit: Visit, choice: UsageChoice) -> tuple[Row, AsyncIterator[Row]]:
    """Returns the columns and the rows of the file."""
    return _file_row(pb.UsageRow(), choice.period, KeyNames()), _file_rows(visit, choice)


async def _choice_in(visit: Visit) -> UsageChoice:
    query = visit.query
    by = query.get("by", "class")
    return UsageChoice(
        period_in(query, visit.zone, visit.now), by if by in GROUPINGS else "class", await read_report_keys(visit)
    )


async def _read_report(visit: Visit, choice: UsageChoice) -> tuple[Report, KeyNames]:
    if choice.by != "class":
        return await _read_report_of_keys(visit, choice)
    period = choice.period
    request = usage_request(visit, period, choice.keys.key_ids, group_by_class=True)
    rows, names = await asyncio.gather(_list_usage(visit, request), _names(visit, choice, []))
    groups = _groups(rows, lambda row: row.class_id)
    return _report(rows, groups, chart_of(rows, period, lambda row: row.class_id), period), names


async def _read_report_of_keys(visit: Visit, choice: UsageChoice) -> tuple[Report, KeyNames]:
    """Reads the sums of the most expensive keys, of all keys by time, and, for the chart, of the first keys by time: of
    very many keys, rows for each would be too many."""
    is_by_member, key_ids, period = choice.by == "member", choice.keys.key_ids, choice.period
    keys_most = MEMBER_KEYS_MOST if is_by_member else ROWS_MOST
    whole = usage_request(visit, period, key_ids, group_by_key=True, bucket=pb.USAGE_BUCKET_PERIOD)
    whole.top_keys = 0 if key_ids else keys_most
    found, rows = await asyncio.gather(
        visit.metering.metering.ListUsage(whole), _list_usage(visit, usage_request(visit, period, key_ids))
    )
    ranked = sorted((row for row in found.rows if row.key_id), key=lambda row: (-row.cost_nanos, row.key_id))
    shown, rest = ranked[:keys_most], ranked[keys_most:]
    others, other_keys = Sums(), len(rest) + found.other_keys
    for row in (*rest, *(row for row in found.rows if not row.key_id)):
        others.add(row)
    names = await _names(visit, choice, [row.key_id for row in shown])
    title_of = _titles(shown, names, is_by_member=is_by_member)
    drawn = _drawn_keys(shown, other_keys, title_of, is_by_member=is_by_member)
    series_rows = await _list_usage(visit, usage_request(visit, period, drawn, group_by_key=True)) if drawn else []
    listed = _groups(shown, lambda row: title_of[row.key_id])
    if other_keys:
        listed.append((ngettext("%(num)s other key", "%(num)s other keys", other_keys), others))
    chart = _chart_of_keys(rows, series_rows, title_of, period, listed[0][0] if len(listed) == 1 else "")
    return _report(rows, listed, chart, period, other_keys), names


def _drawn_keys(
    shown: list[pb.UsageRow], other_keys: int, title_of: Mapping[str, str], *, is_by_member: bool
) -> list[str]:
    """Returns the keys that have a part of their own in the chart; of members all or none, and none of a single one."""
    if is_by_member:
        is_whole = bool(other_keys) or len(set(title_of.values())) <= 1
        return [] if is_whole else [row.key_id for row in shown]
    fits = not other_keys and len(shown) <= MOST_SERIES
    return [row.key_id for row in shown[: MOST_SERIES if fits else MOST_SERIES - 1]]


def _titles(shown: list[pb.UsageRow], names: KeyNames, *, is_by_member: bool) -> dict[str, str]:
    """Returns the names of members, or of keys: those of the same name with the end of their ids."""
    if is_by_member:
        return {row.key_id: names.maker(row.key_id) for row in shown}
    counts = Counter(names.name(row.key_id) for row in shown)
    titles = {}
    for row in shown:
        name = names.name(row.key_id)
        titles[row.key_id] = f"{name} · {row.key_id[-ID_END:]}" if counts[name] > 1 else name
    return titles


def _chart_of_keys(
    rows: list[pb.UsageRow],
    series_rows: list[pb.UsageRow],
    title_of: Mapping[str, str],
    period: Period,
    only_group: str,
) -> CostChart:
    """Draws what some keys cost, and, as one part, what is left of the whole, which may be that of the only group."""
    left: defaultdict[date, int] = defaultdict(int)
    for row in rows:
        left[period.column_of(row.start_time)] += row.cost_nanos
    for row in series_rows:
        left[period.column_of(row.start_time)] -= row.cost_nanos
    chart = chart_of(series_rows, period, lambda row: title_of[row.key_id])
    # The rows of the keys were read last, and have what was charged meanwhile.
    rest = tuple(max(0, left[column]) for column in period.columns)
    if not any(rest):
        return chart
    title = REST if series_rows else only_group or _("All keys")
    return replace(chart, series=(*chart.series, Series(title, rest, free_colour(chart.series))))


def _report(
    rows: list[pb.UsageRow], groups: list[tuple[str, Sums]], chart: CostChart, period: Period, other_keys: int = 0
) -> Report:
    total = Sums()
    columns: defaultdict[date, Sums] = defaultdict(Sums)
    for row in rows:
        total.add(row)
        columns[period.column_of(row.start_time)].add(row)
    newest_first = [(period.title_of(column), columns[column]) for column in reversed(period.columns)]
    return Report(total, groups, [each for each in newest_first if each[1].requests], chart, other_keys)


def _groups(rows: Iterable[pb.UsageRow], name_of: Callable[[pb.UsageRow], str]) -> list[tuple[str, Sums]]:
    """Adds rows up by name, the most expensive first."""
    groups: defaultdict[str, Sums] = defaultdict(Sums)
    for row in rows:
        groups[name_of(row)].add(row)
    return sorted(groups.items(), key=lambda item: (-item[1].cost_nanos, item[0]))


async def _names(visit: Visit, choice: UsageChoice, key_ids: list[str]) -> KeyNames:
    own = choice.keys.own
    return own if own is not None else await read_key_names(visit, [choice.keys.chosen, *key_ids])


async def _list_usage(
    visit: Visit, request: pb.ListUsageRequest, timeout_s: float = READ_TIMEOUT_S
) -> list[pb.UsageRow]:
    return list((await visit.metering.metering.ListUsage(request, timeout=timeout_s)).rows)


async def _file_rows(visit: Visit, choice: UsageChoice) -> AsyncIterator[Row]:
    period, names = choice.period, KeyNames()
    start, span = period.start, FILE_SPAN
    shortest = timedelta(hours=1) if period.unit == "hour" else timedelta(days=1)
    while start < period.end:
        until = min(period.end, _later(period, start, span))
        request = usage_request(visit, period, choice.keys.key_ids, group_by_key=True, group_by_class=True)
        request.start_time.CopyFrom(stamp_of(start))
        request.end_time.CopyFrom(stamp_of(until))
        try:
            rows = await _list_usage(visit, request, LONG_READ_TIMEOUT_S)
        except LegatoError as error:
            is_too_much = error.reason is Reason.REQUEST_INVALID and error.param == "start_time"
            if not is_too_much or span <= shortest:
                raise
            span = max(shortest, span // 2)
            continue
        names = await add_key_names(visit, names, (row.key_id for row in rows))
        for row in rows:
            yield _file_row(row, period, names)
        start = until


def _later(period: Period, start: datetime, span: timedelta) -> datetime:
    """Returns the end of a part: a full hour, and of days a local midnight again, whatever the clocks do in between."""
    if span < timedelta(days=1):
        return start + timedelta(hours=span // timedelta(hours=1))
    return period.zone.midnight(period.zone.today(start) + span)


def _file_row(row: pb.UsageRow, period: Period, names: KeyNames) -> Row:
    local = time_of(row.start_time).astimezone(period.zone.info)
    return {
        "start": local.isoformat(),
        "time_zone": period.zone.name or "UTC",
        "class": row.class_id,
        "key_id": row.key_id,
        "key_name": text_cell(names.name(row.key_id)),
        "created_by": text_cell(names.maker(row.key_id)),
        "requests": row.requests,
        **named(row.usage),
        "cost_usd": format_usd(row.cost_nanos),
        "cost_nanos": row.cost_nanos,
    }
