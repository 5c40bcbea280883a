"""Counts what a campaign saw, by fault, and tells it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.campaigns.revocation.client import ACCEPTED, REFUSED, Answer
from tests.campaigns.revocation.faults import FAULTS

# What is promised to owners. Our own promise is stronger: nothing that was sent after the call returned is accepted.
BOUND_S = 1.0

COLUMNS = (
    "fault", "pairs", "accepted after", "latest ms", "median ms", "p99 ms", "max ms", "by 401/403", "by 503",
    "good 503", "streams", "median ms", "max ms",
)  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """One edge's refusal of one key. Times are seconds."""

    # From the call's return to the sending of the last request that was accepted: below 0 as long as all is well.
    latest_accepted_s: float
    accepted_after: int
    # From the call's begin to the first answer that refused the key, after which none accepted it.
    refused_after_s: float
    by_status: int


def refusal_of(answers: Sequence[Answer], began_at_s: float, returned_at_s: float) -> Refusal:
    """`answers` begin with one that was accepted, and end with one that was refused."""
    accepted = [answer for answer in answers if answer.status == ACCEPTED]
    first_refused = answers[answers.index(accepted[-1]) + 1]
    return Refusal(
        latest_accepted_s=accepted[-1].sent_at_s - returned_at_s,
        accepted_after=sum(answer.sent_at_s > returned_at_s for answer in accepted),
        refused_after_s=max(0.0, first_refused.received_at_s - began_at_s),
        by_status=first_refused.status,
    )


@dataclass
class Tally:
    fault: str
    refusals: list[Refusal] = field(default_factory=list)
    # How long after the call's begin running streams ended.
    streams_s: list[float] = field(default_factory=list)
    # Answers to keys that are good all the time.
    good: Counter[int] = field(default_factory=Counter)

    def row(self) -> list[str]:
        times = [refusal.refused_after_s for refusal in self.refusals]
        by = Counter(refusal.by_status for refusal in self.refusals)
        latest = [refusal.latest_accepted_s for refusal in self.refusals]
        return [
            self.fault,
            str(len(times)),
            str(sum(refusal.accepted_after for refusal in self.refusals)),
            *(_milliseconds(value) for value in (max(latest, default=None), *_quantiles(times, 0.5, 0.99, 1.0))),
            str(sum(by[status] for status in REFUSED)),
            str(by[503]),
            f"{100 * self.good[503] / max(1, self.good.total()):.1f} %",
            str(len(self.streams_s)),
            *(_milliseconds(value) for value in _quantiles(self.streams_s, 0.5, 1.0)),
        ]


@dataclass
class Findings:
    tallies: dict[str, Tally] = field(default_factory=lambda: {fault: Tally(fault) for fault in FAULTS})
    revocations: int = 0
    suspensions: int = 0
    # Whatever should not have happened, one line each.
    violations: list[str] = field(default_factory=list)

    def add(self, fault: str, key_id: str, edge: str, refusal: Refusal) -> None:
        self.tallies[fault].refusals.append(refusal)
        if refusal.accepted_after:
            broken = "BOUND BROKEN" if refusal.latest_accepted_s > BOUND_S else "PROMISE BROKEN"
            late_ms = _milliseconds(refusal.latest_accepted_s)
            self.violations.append(f"{broken}: {key_id} was accepted by {edge} {late_ms} ms too late ({fault})")

    def table(self) -> str:
        in_all = Tally("in all")
        for tally in self.tallies.values():
            in_all.refusals += tally.refusals
            in_all.streams_s += tally.streams_s
            in_all.good += tally.good
        rows = [list(COLUMNS), *(tally.row() for tally in (*self.tallies.values(), in_all))]
        widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS))]
        rows.insert(1, ["-" * width for width in widths])
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
        return "\n".join(lines)


def _quantiles(values: Sequence[float], *shares: float) -> list[float | None]:
    """The nearest that was seen; None where nothing was."""
    ordered = sorted(values)
    return [ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None for share in shares]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}"
