"""Metering's records: accounts, holds, claims, and the ledger's entries.

Money is in nano-dollars, time in microseconds.
"""

from typing import Final, Literal

import msgspec

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
