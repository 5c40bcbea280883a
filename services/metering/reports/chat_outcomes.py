"""Reports which chats of an account failed, and how long the others took: in all, over time, by class and by key."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.reports.additions import Addition, Counts
from services.metering.reports.chat_times import Percentiles, percentiles_of
from services.metering.reports.local_days import require_hours
from services.metering.reports.spans import starts_of
from services.metering.reports.store.account_days import read_failed, read_key_costs, read_outcomes, read_requests
from services.metering.reports.store.entries import read_recent
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


class _Chats(Counts):
    """The counts of one group, as a report has them."""

    def report(self, *, started_at_us: int | None = None, key_id: str = "", class_id: str = "") -> ChatOutcomes:
        failures = sorted(self.failures.items(), key=lambda item: (-item[1][0], item[0]))
        return ChatOutcomes(
            self.sums["requests"],
            percentiles_of(self.times["first_token"]),
            percentiles_of(self.times["duration"]),
            [FailedChats(reason, chats, cut) for reason, (chats, cut) in failures],
            started_at_us,
            key_id,
            class_id,
        )


class _Groups:
    """The counts of all groups of a report."""

    def __init__(self) -> None:
        self.total = _Chats()
        self.by_part: defaultdict[int, _Chats] = defaultdict(_Chats)
        self.by_class: defaultdict[str, _Chats] = defaultdict(_Chats)
        self.by_key: defaultdict[str, _Chats] = defaultdict(_Chats)

    def of(self, part_us: int, class_id: str) -> tuple[_Chats, ...]:
        return self.total, self.by_part[part_us], self.by_class[class_id]


def report_outcomes(connection: Connection, query: OutcomesQuery) -> OutcomesReport:
    """Reads one snapshot."""
    for part in query.parts:
        require_hours(*part)
        if part[0] == part[1]:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("parts_order"), param="start_times")
    recent = [
        each
        for each in read_recent(connection, RECENT_MOST, query.account_id) or ()
        if query.start_us <= each.at_us < query.end_us and (not query.key_ids or each.group.key_id in query.key_ids)
    ]
    groups = _Groups()
    _count_parts(connection, query, groups, recent)
    key_ids = _count_keys(connection, query, groups, recent)
    return OutcomesReport(
        groups.total.report(),
        [counts.report(started_at_us=part_us) for part_us, counts in sorted(groups.by_part.items())],
        [counts.report(class_id=class_id) for class_id, counts in sorted(groups.by_class.items())],
        [groups.by_key[key_id].report(key_id=key_id) for key_id in key_ids],
    )


def _count_parts(connection: Connection, query: OutcomesQuery, groups: _Groups, recent: Sequence[Addition]) -> None:
    # There are many rows, and each belongs to several groups.
    together: defaultdict[tuple[int, str], _Chats] = defaultdict(_Chats)
    chosen = query.account_id, starts_of(query.parts), query.key_ids
    for start_us, class_id, requests in read_requests(connection, *chosen):
        together[query.part_of(start_us), class_id].sums["requests"] += requests
    for row in read_outcomes(connection, *chosen):
        together[query.part_of(row.start_us), row.class_id].add_outcomes(row.outcomes)
    for addition in recent:
        together[query.part_of(addition.at_us), addition.group.class_id].add(addition)
    for (part_us, class_id), added in together.items():
        # Grants and losses are no requests.
        if added.sums["requests"] or added.has_outcomes:
            for counts in groups.of(part_us, class_id):
                counts.add_counts(added)


def _count_keys(connection: Connection, query: OutcomesQuery, groups: _Groups, recent: Sequence[Addition]) -> list[str]:
    """Returns the keys to tell apart: those that failed most often, then those with the highest costs."""
    starts, by_key = starts_of([(query.start_us, query.end_us)]), groups.by_key
    requests, costs, failed = Counter[str](), Counter[str](), Counter[str]()
    for key_id, charged, charged_nanos in read_key_costs(connection, query.account_id, starts):
        requests[key_id] += charged
        costs[key_id] += charged_nanos
    for row in read_failed(connection, query.account_id, starts):
        counts = Counts()
        counts.add_outcomes(row.outcomes)
        failed[row.key_id] += counts.failed
    for addition in recent:
        requests[addition.group.key_id] += addition.sums.get("requests", 0)
        costs[addition.group.key_id] += addition.sums.get("charged_nanos", 0)
    # Grants have no key.
    used = (+requests | +failed).keys() - {""}
    if query.key_ids:
        used &= set(query.key_ids)
    ranked = sorted(used, key=lambda key_id: (-failed[key_id], -costs[key_id], key_id))[:KEYS_MOST]
    for row in read_outcomes(connection, query.account_id, starts, ranked) if ranked else ():
        by_key[row.key_id].add_outcomes(row.outcomes)
    for addition in recent:
        by_key[addition.group.key_id].add(addition)
    for key_id in ranked:
        by_key[key_id].sums["requests"] = requests[key_id]
    return ranked
