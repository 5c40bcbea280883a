"""Reads a provider's bill, a CSV file, and compares it with our own counts, by day and model.

Without columns that are named, it takes those that OpenAI's, Anthropic's and OpenRouter's exports have.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final, NamedTuple

from services.chassis.money import NANOS_PER_DOLLAR

# The columns of known exports; of each kind the first that the file has. Several are added up.
DAYS: Final = (("usage_date_utc",), ("start_time_iso",), ("created_at",), ("date",), ("day",), ("start_time",))
MODELS: Final = (("model_version",), ("model_permaslug",), ("model",), ("model_name",))
INPUTS: Final = (
    (
        "usage_input_tokens_no_cache",
        "usage_input_tokens_cache_write_5m",
        "usage_input_tokens_cache_write_1h",
        "usage_input_tokens_cache_read",
    ),
    ("input_tokens",),
    ("tokens_prompt",),
    ("prompt_tokens",),
)
OUTPUTS: Final = (("usage_output_tokens",), ("output_tokens",), ("tokens_completion",), ("completion_tokens",))
COSTS: Final = (("cost_total",), ("cost_usd",), ("amount_value",), ("cost",))


class BillMistake(Exception):
    """The file cannot be read, and why."""


class UsedTokens(NamedTuple):
    """The counts of one side; None is unknown."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_nanos: int | None = None


NOTHING: Final = UsedTokens(0, 0, 0)
BillKey = tuple[date, str]


@dataclass(frozen=True, slots=True)
class BillColumns:
    """The columns of a bill; empty: those of a known export."""

    day: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    input: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    cost: tuple[str, ...] = ()


@dataclass(slots=True)
class _Sums:
    tokens: dict[str, int] = field(default_factory=dict)
    cost_usd: Decimal | None = None


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A day and a model on both sides. A side that does not have it counts nothing."""

    day: date
    model_name: str
    theirs: UsedTokens
    ours: UsedTokens
    # "bill" or "ledger"; None: both have it.
    only_in: str | None

    @property
    def input_difference(self) -> int | None:
        return _difference(self.theirs.input_tokens, self.ours.input_tokens)

    @property
    def output_difference(self) -> int | None:
        return _difference(self.theirs.output_tokens, self.ours.output_tokens)

    @property
    def cost_difference_nanos(self) -> int | None:
        return _difference(self.theirs.cost_nanos, self.ours.cost_nanos)


def read_bill(lines: Iterable[str], columns: BillColumns, renamed: Mapping[str, str]) -> dict[BillKey, UsedTokens]:
    """Adds up the rows of each day and model. `renamed` has our names of models by the bill's."""
    reader = csv.DictReader(lines)
    headers = reader.fieldnames or ()
    [day_column] = _found(headers, columns.day, DAYS, "day")
    [model_column] = _found(headers, columns.model, MODELS, "model")
    counts = {
        name: found
        for name, given, known in (("input", columns.input, INPUTS), ("output", columns.output, OUTPUTS))
        if (found := _found(headers, given, known))
    }
    cost_columns = _found(headers, columns.cost, COSTS)
    if not counts and not cost_columns:
        raise BillMistake("no column of tokens or cost is known: name them.")
    sums: dict[BillKey, _Sums] = {}
    for row in reader:
        where = f"line {reader.line_num}"
        model = (row[model_column] or "").strip()
        if not model:
            # A line of sums, or of something that is no model.
            continue
        added = sums.setdefault((_day(row[day_column], where), renamed.get(model, model)), _Sums())
        for name, found in counts.items():
            tokens = sum(_count(row[column], where, column) for column in found)
            added.tokens[name] = added.tokens.get(name, 0) + tokens
        if cost_columns:
            # Providers charge fractions of a nano-dollar: rounded once, when all are added up.
            cost_usd = sum((_decimal(row[column], where, column) for column in cost_columns), Decimal())
            added.cost_usd = (added.cost_usd or Decimal()) + cost_usd
    if not sums:
        raise BillMistake("it has no rows.")
    return {
        key: UsedTokens(each.tokens.get("input"), each.tokens.get("output"), _nanos(each)) for key, each in sums.items()
    }


def compare(bill: Mapping[BillKey, UsedTokens], ledger: Mapping[BillKey, UsedTokens]) -> list[ComparedRow]:
    """Returns a row for what either side has, the largest difference first: in money where both sides know it."""
    rows = []
    for key in bill.keys() | ledger.keys():
        theirs, ours = bill.get(key), ledger.get(key)
        only_in = "ledger" if theirs is None else "bill" if ours is None else None
        # What the bill does not tell of any model, it does not tell of one that it does not have.
        absent = NOTHING if theirs is not None or not bill else _known_of(next(iter(bill.values())))
        rows.append(ComparedRow(*key, theirs or absent, ours or NOTHING, only_in))
    rows.sort(key=lambda row: (row.day, row.model_name))
    rows.sort(key=_size, reverse=True)
    return rows


def _size(row: ComparedRow) -> tuple[int, int]:
    return abs(row.cost_difference_nanos or 0), abs(row.input_difference or 0) + abs(row.output_difference or 0)


def _known_of(used: UsedTokens) -> UsedTokens:
    return UsedTokens(*(None if count is None else 0 for count in used))


def _difference(theirs: int | None, ours: int | None) -> int | None:
    return None if theirs is None or ours is None else theirs - ours


def _found(
    headers: Iterable[str], given: tuple[str, ...], known: Iterable[tuple[str, ...]], needed: str = ""
) -> tuple[str, ...]:
    headers = set(headers)
    for column in given:
        if column not in headers:
            raise BillMistake(f'it has no column "{column}".')
    found = given or next((each for each in known if headers.issuperset(each)), ())
    if needed and len(found) != 1:
        raise BillMistake(f"no column of the {needed} is known: name it by --{needed}-column.")
    return found


def _day(text: str | None, where: str) -> date:
    text = (text or "").strip()
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC).date()
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise BillMistake(f'{where}: "{text}" is no day.') from None
    return moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date()


def _count(text: str | None, where: str, column: str) -> int:
    number = _decimal(text, where, column)
    if number != number.to_integral_value() or number < 0:
        raise BillMistake(f'{where}: "{text}" of {column} is no count.')
    return int(number)


def _decimal(text: str | None, where: str, column: str) -> Decimal:
    text = (text or "").strip().replace(",", "").removeprefix("$")
    try:
        number = Decimal(text or "0")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise BillMistake(f'{where}: "{text}" of {column} is no number.')
    return number


def _nanos(sums: _Sums) -> int | None:
    if sums.cost_usd is None:
        return None
    return int((sums.cost_usd * NANOS_PER_DOLLAR).to_integral_value(ROUND_HALF_EVEN))
