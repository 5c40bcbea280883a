"""The records of the ledger: accounts, holds and entries, prices, and the operations on them."""

from typing import Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from services.chassis.sentence import Sentence
from services.metering.credit.prices import Price
from services.rules.usage import Usage, usage_of

State = Literal["held", "settled", "void", "swept"]
Kind = Literal["grant", "adjustment", "charge", "late_charge", "loss"]
# A checkpoint is what a running request had delivered by its last report.
Basis = Literal["provider", "counted", "journal", "checkpoint"]
# The API by which a chat came.
Api = Literal["chat", "messages", "responses", "grpc"]
End = Literal["complete", "client_gone", "upstream_cut", "credit_spent", "refused", "crashed", "key_refused"]

# The kinds of entry that usage counters sum up.
CHARGES: Final[tuple[Kind, ...]] = ("charge", "late_charge")
# The kinds of entry that belong to a request.
BILLED: Final[tuple[Kind, ...]] = (*CHARGES, "loss")

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
# The longest time of a chat that is kept: longer ones are cut.
LONGEST_MS: Final = 24 * 3600 * 1000


class AccountBalance(msgspec.Struct, frozen=True):
    account_id: str
    balance_nanos: int = 0
    # Part of the balance, reserved for running requests.
    held_nanos: int = 0
    # Whether the account or any of its keys has, or had, a spend limit.
    has_spend_limits: bool = False
    # Below it, owners get a notice; None: the service's threshold applies. Operations never change it.
    low_balance_nanos: int | None = None
    # For payments that were returned when their credit was spent or held.
    owed_nanos: int = 0

    @property
    def uncommitted_nanos(self) -> int:
        """The balance without what running requests hold."""
        return self.balance_nanos - self.held_nanos

    @property
    def free_nanos(self) -> int:
        """The most that a new request may hold."""
        return max(0, self.uncommitted_nanos - self.owed_nanos)

    @property
    def spendable_nanos(self) -> int:
        """The credit that would be free if no request was running."""
        return max(0, self.balance_nanos - self.owed_nanos)


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
    # The hour whose counters include its first charge; None while none do.
    counted_hour_us: int | None = None
    reserved_at_us: int | None = None
    resolved_at_us: int | None = None
    # Of the routes that chose the model, as far as it was told.
    routes_version: str | None = None
    # The calls to models that were made for it, as `model_calls` writes them; None: unknown.
    model_calls: str | None = None
    # From its arrival until its answer began, if that was streamed, and until it ended; None: unknown.
    first_token_ms: int | None = None
    duration_ms: int | None = None
    # Of the usage, in the columns that came later.
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    api: Api | None = None

    @property
    def usage(self) -> Usage:
        return usage_of(self)

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
    # For charges: what it adds to the counters of this hour. All charges of a request count in one hour, unless a later
    # one comes when the counters of that month are final.
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
    # Of the usage, in the columns that came later.
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class OwedChange(msgspec.Struct, frozen=True):
    """Says that the loss of an adjustment is owed by the customer, or was repaid. Fields are the table's columns."""

    # That of the adjustment.
    request_id: str
    account_id: str
    # What it adds: the opposite of the adjustment's loss.
    owed_nanos: int
    recorded_at_us: int


class ChangedBy(NamedTuple):
    user_id: str
    session_id: str


# It has no users.
COMMAND_LINE: Final = ChangedBy("", "")


class AccountChange(msgspec.Struct, frozen=True):
    """A change of an account, other than by chatting and paying, for the audit log. Fields are the table's columns,
    after its id."""

    action: Literal["credit.adjusted", "credit.granted", "low_balance.changed", "spend_limits.changed"]
    account_id: str
    # Empty: the account as a whole.
    key_id: str
    user_id: str
    session_id: str
    recorded_at_us: int
    # What changed, as JSON: services/chassis/changes.py. None: a process of release 0.2 wrote it.
    changes: str | None = None


AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


class Operation(msgspec.Struct, Generic[AnswerT_co], frozen=True):
    @property
    def account_id(self) -> str:
        raise NotImplementedError


class RequestOperation(Operation[AnswerT_co], Generic[AnswerT_co], frozen=True):
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
    api: Api | None = None


class Extended(msgspec.Struct, frozen=True):
    extended: bool
    # The requested total, so that a late answer is not taken for another's.
    total_nanos: int
    held_nanos: int
    # The largest total that the account could hold now; and if no other request of it were running.
    affordable_nanos: int
    balance_nanos: int
    # Set if a spend limit, and not the balance, is less than the total.
    spend_limit: "SpendLimitReached | None" = None


class SpendLimitReached(msgspec.Struct, frozen=True):
    """A spend limit that leaves less than a request needs, even if no other request runs."""

    sentence: Sentence
    # Until it starts anew; None: it never does.
    retry_after_s: float | None = None


class Extend(RequestOperation[Extended], frozen=True):
    """Raises a hold to `total_nanos`, an absolute amount. If that is held already, this is only a checkpoint."""

    total_nanos: int
    delivered: Usage


class Checkpoint(RequestOperation[None], frozen=True):
    delivered: Usage


class Settled(msgspec.Struct, frozen=True):
    charged_nanos: int
    loss_nanos: int


class Settle(RequestOperation[Settled], frozen=True):
    usage: Usage
    basis: Basis
    end: End
    routes_version: str | None = None
    model_calls: str | None = None
    # Of one that was refused before, as far as the edge knows them: its hold may be lost.
    class_id: str = ""
    key_id: str = ""
    first_token_ms: int | None = None
    duration_ms: int | None = None


class Void(RequestOperation[None], frozen=True):
    end: End
    key_id: str
    class_id: str
    # Usage that may have been delivered, but cannot be charged.
    lost: Usage = Usage()
    # Usage that is charged though nothing was delivered: the prompt of a client that repeatedly disconnects.
    due: Usage = Usage()
    duration_ms: int | None = None


class Swept(msgspec.Struct, frozen=True):
    """The outcome of a sweep; `swept` is False if the hold was resolved in time."""

    swept: bool
    charged_nanos: int = 0
    loss_bound_nanos: int = 0


class Sweep(RequestOperation[Swept], frozen=True):
    pass


class Grant(CreditOperation, frozen=True):
    """A grant of credit."""

    # What the statement says about it; None: nothing.
    reason: str | None = None
    # The audit log tells it. What operators do on pages, they have told it before.
    is_by_command_line: bool = False


class Adjust(CreditOperation, frozen=True):
    """A correction of a balance."""

    reason: str
    is_by_command_line: bool = False


class ReturnPayment(CreditOperation, frozen=True):
    """A refund or a dispute of a payment: money that was paid for credit and left us again. The amount is positive."""

    reason: str


class RestorePayment(CreditOperation, frozen=True):
    """The end of a return that took nothing in the end: the refund failed, or the dispute was won."""

    return_id: str
    reason: str
