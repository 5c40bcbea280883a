"""Says what an entry of the ledger, with the hold of its request, adds to the statistics; and sums up such additions.

A charge belongs to the model that finished the answer, a call and its cost to the model that was called.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from services.metering.credit.model_calls import decode_calls
from services.metering.credit.records import BILLED, CHARGES, End, Kind
from services.metering.reports.chat_times import MEASURES, Measure, bucket_of
from services.rules.usage import COLUMNS, Usage, named

# The providers' own counts of what was called.
TOLD: Final = {name: f"told_{name}" for name in COLUMNS}
# Columns: what was charged for; what customers paid for it, and what was used and is not paid; grants; adjustments
# without the part of a return that was owed or written off; refunds and disputes of card payments, whole; of what was
# charged, the part whose cost is known; the calls behind it, and those whose cost is unknown.
SUMMED: Final = (
    "requests", *COLUMNS, "charged_nanos", "lost_nanos", "granted_nanos", "adjusted_nanos", "returned_nanos",
    "costed_nanos", "calls", *TOLD.values(), "cost_nanos", "uncosted_calls",
)  # fmt: skip
# The ids of what payments book begin with it.
_PAYMENT_PREFIX: Final = "stripe-"
# Answers that ended otherwise were not whole.
_WHOLE: Final = ("complete", "credit_spent")


class SummedEntry(NamedTuple):
    """An entry, and of a charge what only the hold of its request has."""

    entry_id: int
    kind: Kind
    request_id: str
    account_id: str
    key_id: str
    class_id: str
    recorded_at_us: int
    requests: int
    customer_nanos: int
    loss_nanos: int
    external_nanos: int
    model_calls: str | None
    first_token_ms: int | None
    duration_ms: int | None
    end: End | None
    usage: Usage


class Group(NamedTuple):
    account_id: str
    # Empty: of no key, or of all.
    key_id: str
    class_id: str
    provider: str = ""
    model_name: str = ""


class Addition(NamedTuple):
    group: Group
    at_us: int
    # By column.
    sums: Mapping[str, int] = {}
    # The bucket of each time that is known.
    times: Mapping[Measure, int] = {}
    # By reason: how many chats failed, and how many of them had begun to answer.
    failures: Mapping[str, tuple[int, int]] = {}


def additions_of(entry: SummedEntry) -> Iterator[Addition]:
    calls = decode_calls(entry.model_calls) if entry.kind in CHARGES else []
    group = Group(entry.account_id, entry.key_id, entry.class_id)
    finished = group if not calls else group._replace(provider=calls[-1].provider, model_name=calls[-1].model_name)
    is_costed = bool(calls) and calls[-1].cost_nanos is not None
    yield Addition(finished, entry.recorded_at_us, _sums_of(entry, is_costed=is_costed))
    if entry.requests != 1:
        return
    if times := _times_of(entry):
        # Of all models of a class together, so that there are few of them to read.
        yield Addition(group, entry.recorded_at_us, times=times)
    for call in calls:
        sums = {
            "calls": 1,
            **{TOLD[name]: count for name, count in named(call.usage).items()},
            "cost_nanos": call.cost_nanos or 0,
            "uncosted_calls": int(call.cost_nanos is None),
        }
        called = group._replace(provider=call.provider, model_name=call.model_name)
        yield Addition(called, entry.recorded_at_us, sums)


def _sums_of(entry: SummedEntry, *, is_costed: bool) -> dict[str, int]:
    kind, customer_nanos = entry.kind, entry.customer_nanos
    if kind in CHARGES:
        return {
            "requests": entry.requests,
            **named(entry.usage),
            "charged_nanos": -customer_nanos,
            "lost_nanos": -entry.loss_nanos,
            "costed_nanos": -customer_nanos if is_costed else 0,
        }
    if kind in BILLED:
        return {"lost_nanos": -entry.loss_nanos}
    if kind == "grant":
        return {"granted_nanos": customer_nanos}
    is_payment = entry.request_id.startswith(_PAYMENT_PREFIX)
    return {"adjusted_nanos": customer_nanos, "returned_nanos": entry.external_nanos if is_payment else 0}


def _times_of(entry: SummedEntry) -> dict[Measure, int]:
    times: dict[Measure, int] = {}
    if entry.duration_ms is not None:
        if entry.first_token_ms is not None:
            times["first_token"] = bucket_of(entry.first_token_ms)
        if entry.end in _WHOLE:
            times["duration"] = bucket_of(entry.duration_ms)
    return times


_decode_times: Final = msgspec.json.Decoder(dict[int, int]).decode
_decode_failures: Final = msgspec.json.Decoder(dict[str, tuple[int, int]]).decode


class Counts:
    """Sums of additions: those of one row, or of one group of a report."""

    def __init__(self) -> None:
        self.sums: defaultdict[str, int] = defaultdict(int)
        self.times: dict[Measure, defaultdict[int, int]] = {measure: defaultdict(int) for measure in MEASURES}
        self.failures: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))

    def add(self, addition: Addition) -> None:
        sums = self.sums
        for name, count in addition.sums.items():
            sums[name] += count
        for measure, bucket in addition.times.items():
            self.times[measure][bucket] += 1
        self._add_failures(addition.failures)

    def add_outcomes(self, outcomes: Iterable[str]) -> None:
        """Adds what the columns of a row have."""
        *times, failures = outcomes
        for measure, text in zip(MEASURES, times, strict=True):
            if text != NOTHING:
                counts = self.times[measure]
                for bucket, chats in _decode_times(text).items():
                    counts[bucket] += chats
        if failures != NOTHING:
            self._add_failures(_decode_failures(failures))

    def add_counts(self, other: "Counts") -> None:
        for name, count in other.sums.items():
            self.sums[name] += count
        for measure, counts in other.times.items():
            own = self.times[measure]
            for bucket, chats in counts.items():
                own[bucket] += chats
        self._add_failures(other.failures)

    def outcomes(self) -> tuple[str, ...]:
        """Returns the columns of a row."""
        return *(_encode(self.times[measure]) for measure in MEASURES), _encode(self.failures)

    @property
    def has_outcomes(self) -> bool:
        return bool(self.failures) or any(self.times.values())

    @property
    def failed(self) -> int:
        return sum(chats for chats, _ in self.failures.values())

    def _add_failures(self, added: Mapping[str, tuple[int, int]]) -> None:
        for reason, (chats, cut) in added.items():
            found = self.failures[reason]
            self.failures[reason] = (found[0] + chats, found[1] + cut)


# Most rows have no outcomes.
NOTHING: Final = "{}"


def _encode(counts: Mapping[Any, Any]) -> str:
    return msgspec.json.encode(dict(counts)).decode() if counts else NOTHING
