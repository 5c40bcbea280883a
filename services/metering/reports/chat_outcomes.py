"""Reports which chats of an account failed, and how long the others took: in all, over time, by class and by key."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.reports.chat_times import Measure, Percentiles, percentiles_of
from services.metering.reports.local_days import UTC_DAYS, require_hours
from services.metering.reports.store.chat_times import read_recent_times, read_times, spans_of
from services.metering.reports.store.failures import read_failures
from services.metering.reports.store.key_totals import KeyTotals
from services.metering.reports.store.model_days import read_reported_id
from services.metering.reports.store.usage import UsageReportQuery, read_usage
from services.metering.reports.usage import ROWS_MOST
from services.metering.store import Connection

KEYS_MOST: Final = 20
# Chats of the last minutes that are looked at one by one. Only behind a start after an upgrade are there more.
RECENT_MOST: Final = 20_000


class OutcomesQuery(msgspec.Struct, frozen=True):
    account_id: str
    # When each part of the period begins, in order.
    starts_us: tuple[int, ...]
    # Of the last part, exclusive.
    end_us: int
    # Of these alone; empty: of all.
    key_ids: tuple[str, ...] = ()

    @property
    def start_us(self) -> int:
        return self.starts_us[0]

    @property
    def parts(self) -> list[tuple[int, int]]:
        return [*pairwise((*self.starts_us, self.end_us))]

    def part_of(self, at_us: int) -> int:
        """Returns the start of the part that a time is in."""
        return self.starts_us[bisect_right(self.starts_us, at_us) - 1]


class FailedChats(msgspec.Struct, frozen=True):
    reason: str
    requests: int
    # Of them, those whose answer had begun.
    cut_requests: int


class ChatOutcomes(msgspec.Struct, frozen=True):
    """The chats of a group, and what became of them. Fields by which they are not grouped are empty."""

    charged_requests: int
    first_token: Percentiles
    duration: Percentiles
    failures: list[FailedChats]
    started_at_us: int | None = None
    key_id: str = ""
    class_id: str = ""


class OutcomesReport(msgspec.Struct, frozen=True):
    total: ChatOutcomes
    parts: list[ChatOutcomes]
    classes: list[ChatOutcomes]
    keys: list[ChatOutcomes]


class _Counts:
    """The counts of one group."""

    def __init__(self) -> None:
        self.charged_requests = 0
        self.times: defaultdict[Measure, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.failures: Counter[tuple[str, bool]] = Counter()

    def told(self, **group: Any) -> ChatOutcomes:
        failed: Counter[str] = Counter()
        for (reason, _), chats in self.failures.items():
            failed[reason] += chats
        return ChatOutcomes(
            self.charged_requests,
            percentiles_of(self.times["first_token"]),
            percentiles_of(self.times["duration"]),
            [
                FailedChats(reason, chats, self.failures[reason, True])
                for reason, chats in sorted(failed.items(), key=lambda item: (-item[1], item[0]))
            ],
            **group,
        )


class _Groups:
    """The counts of all groups of a report."""

    def __init__(self) -> None:
        self.total = _Counts()
        self.by_part: defaultdict[int, _Counts] = defaultdict(_Counts)
        self.by_class: defaultdict[str, _Counts] = defaultdict(_Counts)
        self.by_key: defaultdict[str, _Counts] = defaultdict(_Counts)

    def of(self, part_us: int, class_id: str) -> tuple[_Counts, ...]:
        return self.total, self.by_part[part_us], self.by_class[class_id]


def report_outcomes(connection: Connection, query: OutcomesQuery, totals: KeyTotals) -> OutcomesReport:
    """Reads one snapshot."""
    for part in query.parts:
        require_hours(*part)
        if part[0] == part[1]:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("parts_order"), param="start_times")
    groups = _Groups()
    _count_failures(connection, query, groups)
    key_ids = _count_charged(connection, query, groups, totals)
    _count_times(connection, query, groups, key_ids)
    _count_recent_times(connection, query, groups)
    return OutcomesReport(
        groups.total.told(),
        [counts.told(started_at_us=part_us) for part_us, counts in sorted(groups.by_part.items())],
        [counts.told(class_id=class_id) for class_id, counts in sorted(groups.by_class.items())],
        [groups.by_key[key_id].told(key_id=key_id) for key_id in key_ids],
    )


def _count_failures(connection: Connection, query: OutcomesQuery, groups: _Groups) -> None:
    found = read_failures(connection, query.account_id, query.parts, query.key_ids)
    for part_us, rows in zip(query.starts_us, found, strict=True):
        for key_id, class_id, reason, is_cut, chats in rows:
            for counts in (*groups.of(part_us, class_id), groups.by_key[key_id]):
                counts.failures[reason, bool(is_cut)] += chats


def _count_charged(connection: Connection, query: OutcomesQuery, groups: _Groups, totals: KeyTotals) -> list[str]:
    """Returns the keys to tell apart: those that failed most often, then those with the highest costs."""
    for part in query.parts:
        usage = UsageReportQuery(
            query.account_id, *part, bucket_us=0, group_by_key=False, group_by_class=True, key_ids=query.key_ids
        )
        for _, _, class_id, requests, *_ in read_usage(connection, usage, UTC_DAYS.offsets, ROWS_MOST):
            for counts in groups.of(part[0], class_id):
                counts.charged_requests += requests
    by_key = totals.read(connection, query.account_id, query.start_us, query.end_us)
    used = by_key.keys() & query.key_ids if query.key_ids else by_key.keys()
    failed = {key_id: counts.failures.total() for key_id, counts in groups.by_key.items()}
    costs = {key_id: by_key[key_id].cost_nanos for key_id in used}
    ranked = sorted(failed.keys() | used, key=lambda key_id: (-failed.get(key_id, 0), -costs.get(key_id, 0), key_id))[
        :KEYS_MOST
    ]
    for key_id in ranked:
        if key_id in used:
            groups.by_key[key_id].charged_requests = by_key[key_id].requests
    return ranked


def _count_times(connection: Connection, query: OutcomesQuery, groups: _Groups, key_ids: Sequence[str]) -> None:
    account_id = query.account_id
    spans = [(part[0], span) for part in query.parts for span in spans_of(*part)]
    times = read_times(connection, account_id, [span for _, span in spans], query.key_ids)
    # There are many rows, and each belongs to several groups.
    together: defaultdict[tuple[int, str, Measure], defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for (part_us, _), rows in zip(spans, times, strict=True):
        for _, class_id, measure, chats in rows:
            _add(together[part_us, class_id, measure], chats)
    for (part_us, class_id, measure), chats in together.items():
        for counts in groups.of(part_us, class_id):
            _add(counts.times[measure], chats)
    if key_ids:
        for rows in read_times(connection, account_id, spans_of(query.start_us, query.end_us), key_ids):
            for key_id, _, measure, chats in rows:
                _add(groups.by_key[key_id].times[measure], chats)


def _count_recent_times(connection: Connection, query: OutcomesQuery, groups: _Groups) -> None:
    for chat in read_recent_times(connection, query.account_id, read_reported_id(connection), RECENT_MOST):
        if query.start_us <= chat.hour_us < query.end_us and (not query.key_ids or chat.key_id in query.key_ids):
            for counts in (*groups.of(query.part_of(chat.hour_us), chat.class_id), groups.by_key[chat.key_id]):
                counts.times[chat.measure][chat.bucket] += 1


def _add(times: defaultdict[int, int], chats_by_bucket: dict[int, int]) -> None:
    for bucket, chats in chats_by_bucket.items():
        times[bucket] += chats
