"""Computes what tokens cost. Prices are nano-dollars per million tokens, so that only the final sum is rounded."""

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError
from services.metering.ledger.records import Usage

CLASSES: Final = ("mezzo", "forte", "fortissimo")

MILLION: Final = 1_000_000
# A million dollars: above it, a request's cost might overflow the database's integers.
LARGEST_PRICE_NANOS: Final = 10**15

_DOLLARS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Price(msgspec.Struct, frozen=True):
    input_nanos: int
    cached_input_nanos: int
    output_nanos: int

    def cost_nanos(self, usage: Usage) -> int:
        """Returns the cost, rounded up once."""
        total = (
            (usage.prompt_tokens - usage.cached_tokens) * self.input_nanos
            + usage.cached_tokens * self.cached_input_nanos
            + usage.completion_tokens * self.output_nanos
        )
        return -(-total // MILLION)


class Prices:
    """All price versions that may still be needed; new requests use the current one."""

    def __init__(self, current_version: int, versions: Mapping[int, Mapping[str, Price]]) -> None:
        self.current_version = current_version
        self._versions = dict(versions)

    def current(self, class_id: str) -> Price:
        price = self._versions[self.current_version].get(class_id)
        if price is None:
            raise LegatoError(Reason.REQUEST_INVALID, "This class has no price.", param="class_id")
        return price

    @property
    def least_input_nanos(self) -> int:
        """The lowest input price of all classes, by the current version."""
        return min((price.input_nanos for price in self._versions[self.current_version].values()), default=0)

    def pinned(self, version: int, class_id: str) -> Price:
        return self._versions[version][class_id]

    def has(self, version: int) -> bool:
        return version in self._versions

    def add(self, version: int, prices: Mapping[str, Price]) -> None:
        """Adds a version that another replica made. Versions never change, so concurrent readers are safe."""
        self._versions[version] = prices


def read_prices(path: Path) -> dict[str, Price]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"LEGATO_PRICES: cannot read {path}: {type(error).__name__}") from error
    try:
        return parse_prices(text)
    except SettingsError as error:
        raise SettingsError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error


def parse_prices(text: str) -> dict[str, Price]:
    """Parses the price file; all mistakes are reported at once, by key."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"not TOML: {error}") from error
    classes = document.get("classes")
    if not isinstance(classes, dict):
        raise SettingsError("classes: must be a table with one table for each class")
    mistakes = [f"{name}: is not a known key" for name in document if name != "classes"]
    mistakes += [
        f"classes.{name}: is not a class; the classes are {', '.join(CLASSES)}"
        for name in classes
        if name not in CLASSES
    ]
    prices = {}
    for class_id in CLASSES:
        if class_id not in classes:
            mistakes.append(f"classes.{class_id}: is missing")
        elif isinstance(classes[class_id], dict):
            prices[class_id] = _parse_price(f"classes.{class_id}", classes[class_id], mistakes)
        else:
            mistakes.append(f"classes.{class_id}: must be a table")
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return prices


def _parse_price(where: str, table: dict[str, Any], mistakes: list[str]) -> Price:
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
