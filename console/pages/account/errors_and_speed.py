"""Failed requests of a period, by reason with what to do about it, and how long answers took, by class and key."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

from starlette.responses import Response

from console.account.key_names import KeyNames, read_key_names, read_report_keys
from console.display.charts import CostChart, Series
from console.display.error_words import error_words
from console.display.language import N_, _
from console.display.words import NO_BREAK, number
from console.services import if_available
from console.web.periods import CHOICES, Period, period_in, stamp_of
from console.web.visit import Visit
from legato_protos.metering.v1 import chat_outcomes_pb2 as pb

# What is no error to a client.
_FURTHER_WORDS: Final = {
    "CLIENT_GONE": (
        N_("The client left before the answer had ended"),
        N_("If nobody stopped it, raise the time limit of the program that calls, or of the proxy before it."),
    ),
    "CREDIT_SPENT": (
        N_("The answer was ended because no more credit could be held"),
        N_("Add credit, or raise the spend limit that was reached."),
    ),
}


@dataclass(frozen=True, slots=True)
class FailedRequests:
    """Failed requests of one reason, in words."""

    meaning: str
    advice: str
    requests: int
    # Of them, those whose answer had begun.
    cut_requests: int


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The requests of a group, and what became of them."""

    name: str
    charged_requests: int
    failures: tuple[FailedRequests, ...]
    first_token: pb.Percentiles
    duration: pb.Percentiles

    @property
    def failed_requests(self) -> int:
        return sum(each.requests for each in self.failures)

    @property
    def requests(self) -> int:
        """All attempts. What failed after its answer had begun is among those that were charged."""
        return self.charged_requests + sum(each.requests - each.cut_requests for each in self.failures)

    @property
    def failed_share(self) -> float:
        return self.failed_requests / max(1, self.requests)


@dataclass(frozen=True, slots=True)
class OutcomesPage:
    total: Outcomes
    classes: list[Outcomes]
    keys: list[Outcomes]
    # By hour, day or month, the newest first; those that have any.
    columns: list[Outcomes]
    failed_chart: CostChart
    first_token_chart: CostChart
    duration_chart: CostChart


async def show(visit: Visit) -> Response:
    period, keys = period_in(visit.query, visit.zone, visit.now), await read_report_keys(visit)
    columns = {_start_of(period, column): column for column in period.columns}
    request = pb.GetChatOutcomesRequest(
        account_id=visit.account_id,
        start_times=map(stamp_of, columns),
        end_time=stamp_of(period.end),
        key_ids=keys.key_ids,
    )
    found = await if_available(visit.metering.chat_outcomes.GetChatOutcomes(request))
    key_ids = [each.key_id for each in found.keys] if found else []
    names = keys.own or await read_key_names(visit, [keys.chosen, *key_ids])
    return visit.render(
        "errors_and_speed.html",
        keys=keys,
        period=period,
        report=_report(found, period, columns, names) if found else None,
        names=names,
        periods=CHOICES,
    )


def _start_of(period: Period, column: date) -> datetime:
    """Returns when an hour, a day or a month begins, of which the first may begin before the period."""
    return column if isinstance(column, datetime) else max(period.start, period.zone.midnight(column))


def _report(
    found: pb.GetChatOutcomesResponse, period: Period, columns: dict[datetime, date], names: KeyNames
) -> OutcomesPage:
    parts = {columns[each.start_time.ToDatetime(UTC)]: each for each in found.parts}
    outcomes = [_outcomes(parts.get(column, pb.ChatOutcomes()), period.title_of(column)) for column in period.columns]
    return OutcomesPage(
        _outcomes(found.total, ""),
        [_outcomes(each, each.class_id or _("Before the class was known")) for each in found.classes],
        [_outcomes(each, names.name(each.key_id)) for each in found.keys],
        [each for each in reversed(outcomes) if each.requests],
        _failed_chart(period, outcomes),
        _times_chart(period, outcomes, lambda each: each.first_token, 2),
        _times_chart(period, outcomes, lambda each: each.duration, 1),
    )


def _outcomes(given: pb.ChatOutcomes, name: str) -> Outcomes:
    failures = tuple(_failure(each) for each in given.failures)
    return Outcomes(name, given.charged_requests, failures, given.first_token, given.duration)


def _failure(given: pb.FailedRequests) -> FailedRequests:
    if given.reason in _FURTHER_WORDS:
        meaning, advice = _FURTHER_WORDS[given.reason]
    else:
        meaning, advice, _operator_advice = error_words(given.reason)
    return FailedRequests(_(meaning), _(advice), given.requests, given.cut_requests)


def _failed_chart(period: Period, outcomes: Iterable[Outcomes]) -> CostChart:
    failed = [(each.name, each.failed_requests) for each in outcomes]
    titles = tuple(f"{name}: {number(requests)}" for name, requests in failed)
    series = Series(_("Failed requests"), tuple(requests for _name, requests in failed), 1)
    return CostChart(tuple(period.columns), (series,), titles, has_whole_titles=True)


def _times_chart(
    period: Period, outcomes: Iterable[Outcomes], of: Callable[[Outcomes], pb.Percentiles], places: int
) -> CostChart:
    """Draws the time in which 95 of 100 answers came, and in front of it that in which half of them did."""
    times = [(each.name, of(each)) for each in outcomes]
    titles = tuple(
        f"{name}: {in_seconds(each.p50_ms, places)}, {in_seconds(each.p95_ms, places)}" for name, each in times
    )
    half = Series(_("Half of them within"), tuple(each.p50_ms for _name, each in times), 1)
    most = Series(_("95 of 100 within"), tuple(each.p95_ms for _name, each in times), 2)
    return CostChart(tuple(period.columns), (most, half), titles, has_whole_titles=True, is_sum=False)


def in_seconds(time_ms: float, places: int) -> str:
    return f"{number(time_ms / 1000, places)}{NO_BREAK}s"
