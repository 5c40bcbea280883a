"""What the books hold: accounts, holds, claims, and the ledger's entries.

Money is in nano-dollars, time in microseconds.
"""

from typing import Final, Literal

import msgspec

State = Literal["held", "settled", "void", "swept"]
Kind = Literal["grant", "adjustment", "charge", "late_charge", "loss"]
# A checkpoint is what a running request had delivered when it was last heard of.
Basis = Literal["provider", "counted", "journal", "checkpoint"]
End = Literal["complete", "client_gone", "upstream_cut", "credit_spent", "refused", "crashed", "key_refused"]

# The kinds of entry that usage counters add up.
CHARGES: Final[tuple[Kind, ...]] = ("charge", "late_charge")

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US


class Usage(msgspec.Struct, frozen=True):
    """Cached tokens are part of the prompt's."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class AccountBalance(msgspec.Struct, frozen=True):
    account_id: str
    balance_nanos: int = 0
    # Part of the balance, set aside for requests that run.
    held_nanos: int = 0

    @property
    def free_nanos(self) -> int:
        return self.balance_nanos - self.held_nanos


class Hold(msgspec.Struct, frozen=True):
    """Credit set aside for one request, and afterwards what became of it. Fields are the table's columns."""

    request_id: str
    account_id: str
    key_id: str
    class_id: str
    state: State
    amount_nanos: int = 0
    # 0 for a request that was given up before it was ever reserved.
    price_version: int = 0
    deadline_at_us: int | None = None
    # While held: what was delivered at the last checkpoint. Afterwards: what was charged for.
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    charged_nanos: int = 0
    # What was used and could not be charged.
    loss_nanos: int = 0
    # Swept, and nobody knows what was used after the checkpoint: not more than this.
    loss_bound_nanos: int = 0
    basis: Basis | None = None
    end: End | None = None
    # The hour whose counters have this request; None while they do not.
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
    """Which request has an Idempotency-Key of the account. Fields are the table's columns."""

    account_id: str
    key_digest: bytes
    body_digest: bytes
    request_id: str
    claimed_at_us: int


class Entry(msgspec.Struct, frozen=True):
    """One booking, never changed. Its four legs add up to zero: what the customer pays and what we lose is our revenue;
    what comes from outside is the customer's. Fields are the table's columns."""

    kind: Kind
    # The request, the grant or the adjustment that this books.
    request_id: str
    account_id: str
    customer_nanos: int
    recorded_at_us: int
    revenue_nanos: int = 0
    loss_nanos: int = 0
    external_nanos: int = 0
    # Of a charge: what it adds to the counters of this hour. All charges of a request are counted in one hour.
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
    # Why: of an adjustment in the words of whoever made it, of a loss in one of the ledger's.
    reason: str | None = None
