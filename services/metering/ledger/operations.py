"""The operations on the ledger, and their answers. `AnswerT` ties each operation to its own."""

from typing import Generic, TypeVar

import msgspec

from services.metering.ledger.prices import Price
from services.metering.ledger.records import AccountBalance, Basis, End, Usage

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
