"""The records of the ledger: accounts, holds and entries, prices, and the operations on them."""

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.settings import SettingsError

State = Literal["held", "settled", "void", "swept"]
Kind = Literal["grant", "adjustment", "charge", "late_charge", "loss"]
# A checkpoint is what a running request had delivered by its last report.
Basis = Literal["provider", "counted", "journal", "checkpoint"]
End = Literal["complete", "client_gone", "upstream_cut", "credit_spent", "refused", "crashed", "key_refused"]

# The kinds of entry that usage counters sum up.
CHARGES: Final[tuple[Kind, ...]] = ("charge", "late_charge")

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US


class Usage(msgspec.Struct, frozen=True):
    """Token counts of a request; cached tokens are included in the prompt's."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class AccountBalance(msgspec.Struct, frozen=True):
    account_id: str
    balance_nanos: int = 0
    # Part of the balance, reserved for running requests.
    held_nanos: int = 0
    # Whether the account or any of its keys has, or had, a spend limit.
    has_spend_limits: bool = False

    @property
    def free_nanos(self) -> int:
        return self.balance_nanos - self.held_nanos


class Hold(msgspec.Struct, frozen=True):
    """Credit reserved for one request, and its outcome afterwards. Fields are the table's columns."""

    request_id: str
    account_id: str
    key_id: str
    class_id: str
    state: State
    amount_nanos: int = 0
    # 0 for a request that was voided before it was reserved.
    price_version: int = 0
    deadline_at_us: int | None = None
    # While held: what the last checkpoint had delivered. Afterwards: what was charged for.
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    charged_nanos: int = 0
    # Usage that could not be charged.
    loss_nanos: int = 0
    # If swept, the upper bound of the unknown usage after the last checkpoint.
    loss_bound_nanos: int = 0
    basis: Basis | None = None
    end: End | None = None
    # The hour whose counters include this request; None while none do.
    counted_hour_us: int | None = None
    reserved_at_us: int | None = None
    resolved_at_us: int | None = None

    @property
    def usage(self) -> Usage:
        return Usage(self.prompt_tokens, self.cached_tokens, self.completion_tokens)

    @property
    def booked_nanos(self) -> int:
        return self.charged_nanos + self.loss_nanos


class Claim(msgspec.Struct, frozen=True):
    """The request that owns an Idempotency-Key of the account. Fields are the table's columns."""

    account_id: str
    key_digest: bytes
    body_digest: bytes
    request_id: str
    claimed_at_us: int


class Entry(msgspec.Struct, frozen=True):
    """One immutable booking. Its four legs sum to zero: what the customer pays and what we lose is our revenue; what
    comes from outside is the customer's. Fields are the table's columns."""

    kind: Kind
    # The id of the request, grant or adjustment that is booked.
    request_id: str
    account_id: str
    customer_nanos: int
    recorded_at_us: int
    revenue_nanos: int = 0
    loss_nanos: int = 0
    external_nanos: int = 0
    # For charges: what it adds to the counters of this hour. All charges of a request count in one hour.
    key_id: str = ""
    class_id: str = ""
    price_version: int = 0
    hour_us: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    basis: Basis | None = None
    end: End | None = None
    # The reason: free text for an adjustment, one of the ledger's constants for a loss.
    reason: str | None = None


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


AnswerT = TypeVar("AnswerT")


class Operation(msgspec.Struct, Generic[AnswerT], frozen=True):
    @property
    def account_id(self) -> str:
        raise NotImplementedError


class RequestOperation(Operation[AnswerT], Generic[AnswerT], frozen=True):
    request_id: str
    account_id: str


class CreditOperation(Operation[AccountBalance], frozen=True):
    """`operation_id` is chosen by the caller: a repeat under the same id changes nothing."""

    operation_id: str
    account_id: str
    amount_nanos: int


class Reserved(msgspec.Struct, frozen=True):
    held_nanos: int
    free_nanos: int
    price_version: int
    price: Price


class IdempotencyClaim(msgspec.Struct, frozen=True):
    """Keyed digests of a request's Idempotency-Key and of its body."""

    key_digest: bytes
    body_digest: bytes


class Reserve(RequestOperation[Reserved], frozen=True):
    key_id: str
    class_id: str
    prompt_tokens: int
    output_tokens: int
    claim: IdempotencyClaim | None = None
    # How many live holds the key may have; None: unlimited.
    concurrent_requests: int | None = None
    # The maximum output, to be held at once if credit is ample; 0: the hold grows with the output.
    whole_output_tokens: int = 0


class Extended(msgspec.Struct, frozen=True):
    extended: bool
    # The requested total, so that a late answer is not taken for another's.
    total_nanos: int
    held_nanos: int
    # The largest total that the account could hold now; and if no other request of it were running.
    affordable_nanos: int
    balance_nanos: int


class Extend(RequestOperation[Extended], frozen=True):
    """Raises a hold to `total_nanos`, an absolute amount. If that is held already, this is only a checkpoint."""

    total_nanos: int
    delivered: Usage


class Checkpointed(msgspec.Struct, frozen=True):
    pass


class Checkpoint(RequestOperation[Checkpointed], frozen=True):
    delivered: Usage


class Settled(msgspec.Struct, frozen=True):
    charged_nanos: int
    loss_nanos: int


class Settle(RequestOperation[Settled], frozen=True):
    usage: Usage
    basis: Basis
    end: End


class Voided(msgspec.Struct, frozen=True):
    pass


class Void(RequestOperation[Voided], frozen=True):
    end: End
    key_id: str
    class_id: str
    # Usage that may have been delivered, but cannot be charged.
    lost: Usage = Usage()
    # Usage that is charged though nothing was delivered: the prompt of a client that repeatedly disconnects.
    due: Usage = Usage()


class Swept(msgspec.Struct, frozen=True):
    """The outcome of a sweep; `swept` is False if the hold was resolved in time."""

    swept: bool
    charged_nanos: int = 0
    loss_bound_nanos: int = 0


class Sweep(RequestOperation[Swept], frozen=True):
    pass


class Grant(CreditOperation, frozen=True):
    """A grant of credit."""


class Adjust(CreditOperation, frozen=True):
    """A correction of a balance."""

    reason: str
