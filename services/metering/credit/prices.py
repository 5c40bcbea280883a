"""Token counts, and what they cost by the versions of the price list."""

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.settings import SettingsError
from services.rules.cost import cost_nanos
from services.rules.model_classes import CLASSES

# A million dollars: above it, a request's cost might overflow the database's integers.
LARGEST_PRICE_NANOS: Final = 10**15


FILE_VERSION_DIGITS: Final = 12
_DOLLARS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Price(msgspec.Struct, frozen=True):
    """Fields are the table's columns, after its key."""

    input_nanos_per_million: int
    cached_input_nanos_per_million: int
    output_nanos_per_million: int

    # Called for every operation: a method of its own would be another call.
    cost_nanos = cost_nanos


class ScheduledPrices(NamedTuple):
    """Prices that are valid from a time in the future, or were once."""

    valid_from_us: int
    prices: Mapping[str, Price]


class PriceFile(NamedTuple):
    current: Mapping[str, Price]
    # The earliest first. They replace `current` at their time.
    scheduled: tuple[ScheduledPrices, ...] = ()

    @property
    def version(self) -> str:
        """The first digits of a digest of what the file says: the same for all replicas whose files say the same."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:FILE_VERSION_DIGITS]

    def valid_at(self, now_us: int) -> Mapping[str, Price]:
        return next((each.prices for each in reversed(self.scheduled) if each.valid_from_us <= now_us), self.current)


class ScheduledVersion(NamedTuple):
    effective_from_us: int
    version: int


class Prices:
    """All price versions that may still be needed; new requests use the current one."""

    def __init__(
        self,
        current_version: int,
        versions: Mapping[int, Mapping[str, Price]],
        scheduled: Sequence[ScheduledVersion] = (),
    ) -> None:
        """Starts with a version; `scheduled` are those that replace it, the earliest first."""
        self._versions = dict(versions)
        # One value, since another thread reads it.
        self._schedule = (current_version, tuple(scheduled))

    @property
    def current_version(self) -> int:
        """The version before any that is scheduled."""
        return self._schedule[0]

    @property
    def scheduled(self) -> tuple[ScheduledVersion, ...]:
        """The versions that replace the current one, the earliest first."""
        return self._schedule[1]

    def follow(self, other: "Prices") -> bool:
        """Takes over the schedule of another; returns whether it differs from the one before."""
        before = self._schedule
        # Versions first, for a thread that reads the schedule meanwhile.
        self._versions |= other._versions
        self._schedule = other._schedule
        return self._schedule != before

    def version_at(self, now_us: int) -> int:
        """Returns the version for requests that begin now, by the database's clock."""
        version, scheduled = self._schedule
        for each in scheduled:
            if each.effective_from_us <= now_us:
                version = each.version
        return version

    def of_version(self, version: int, class_id: str) -> Price:
        price = self._versions[version].get(class_id)
        if price is None:
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("class_without_price"), param="class_id")
        return price

    @property
    def least_input_nanos_per_million(self) -> int:
        """The lowest input price of all classes, now or at any time that is scheduled."""
        version, scheduled = self._schedule
        versions = [version, *(each.version for each in scheduled)]
        prices = [price for each in versions for price in self._versions[each].values()]
        return min((price.input_nanos_per_million for price in prices), default=0)

    def pinned(self, version: int, class_id: str) -> Price:
        return self._versions[version][class_id]

    def has(self, version: int) -> bool:
        return version in self._versions

    def add(self, version: int, prices: Mapping[str, Price]) -> None:
        """Adds a version that another replica made. Versions never change, so concurrent readers are safe."""
        self._versions[version] = prices


def read_prices(path: Path) -> PriceFile:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"LEGATO_PRICES: cannot read {path}: {type(error).__name__}") from error
    try:
        return parse_prices(text)
    except SettingsError as error:
        raise SettingsError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error


def parse_prices(text: str) -> PriceFile:
    """Parses the price file; all mistakes are reported at once, by key."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not TOML: {error}") from error
    mistakes = [f"{name}: is not a known key" for name in document if name not in ("classes", "scheduled")]
    current = _parse_classes("classes", document.get("classes"), mistakes)
    lists = document.get("scheduled", [])
    if not isinstance(lists, list) or not all(isinstance(each, dict) for each in lists):
        mistakes.append("scheduled: must be a list of tables, each with valid_from and classes")
        lists = []
    scheduled = [_parse_scheduled(f"scheduled[{number}]", each, mistakes) for number, each in enumerate(lists)]
    if len({each.valid_from_us for each in scheduled}) < len(scheduled):
        mistakes.append("scheduled: two lists have the same valid_from")
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return PriceFile(current, tuple(sorted(scheduled, key=lambda each: each.valid_from_us)))


def _parse_scheduled(where: str, table: dict[str, object], mistakes: list[str]) -> ScheduledPrices:
    mistakes += [f"{where}.{name}: is not a known key" for name in table if name not in ("valid_from", "classes")]
    valid_from = table.get("valid_from")
    valid_from_us = 0
    if isinstance(valid_from, datetime) and valid_from.tzinfo is not None:
        valid_from_us = round(valid_from.timestamp()) * 1_000_000
    else:
        mistakes.append(f"{where}.valid_from: must be a time with its offset, like 2027-01-01T00:00:00Z")
    return ScheduledPrices(valid_from_us, _parse_classes(f"{where}.classes", table.get("classes"), mistakes))


def _parse_classes(where: str, classes: object, mistakes: list[str]) -> dict[str, Price]:
    if not isinstance(classes, dict):
        mistakes.append(f"{where}: must be a table with one table for each class")
        return {}
    mistakes += [
        f"{where}.{name}: is not a class; the classes are {', '.join(CLASSES)}"
        for name in classes
        if name not in CLASSES
    ]
    prices = {}
    for class_id in CLASSES:
        if class_id not in classes:
            mistakes.append(f"{where}.{class_id}: is missing")
        elif isinstance(classes[class_id], dict):
            prices[class_id] = parse_price(f"{where}.{class_id}", classes[class_id], mistakes)
        else:
            mistakes.append(f"{where}.{class_id}: must be a table")
    return prices


def parse_price(where: str, table: dict[str, object], mistakes: list[str]) -> Price:
    known = ("input", "cached_input", "output")
    mistakes += [f"{where}.{name}: is not a known key" for name in table if name not in known]
    amounts = {name: _parse_amount(f"{where}.{name}", table[name], mistakes) for name in known if name in table}
    mistakes += [f"{where}.{name}: is missing" for name in ("input", "output") if name not in table]
    input_nanos = amounts.get("input", 0)
    return Price(input_nanos, amounts.get("cached_input", input_nanos), amounts.get("output", 0))


def _parse_amount(where: str, given: object, mistakes: list[str]) -> int:
    """Returns nano-dollars; 0 if it reports a mistake."""
    if not isinstance(given, str) or not _DOLLARS.fullmatch(given):
        mistakes.append(f'{where}: must be dollars in a string, like "0.10", with at most nine decimals')
        return 0
    nanos = int(Decimal(given) * 10**9)
    if nanos > LARGEST_PRICE_NANOS:
        mistakes.append(f"{where}: must be at most {LARGEST_PRICE_NANOS // 10**9} dollars")
        return 0
    return nanos
