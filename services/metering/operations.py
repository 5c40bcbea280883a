"""What can be asked of the books, and the answers. `AnswerT` ties each operation to its own."""

from typing import Generic, TypeVar

import msgspec

from services.metering.prices import Price
from services.metering.records import AccountBalance, Basis, End, Usage

AnswerT = TypeVar("AnswerT")


class Operation(msgspec.Struct, Generic[AnswerT], frozen=True):
    request_id: str
    account_id: str


class Reserved(msgspec.Struct, frozen=True):
    held_nanos: int
    free_nanos: int
    price_version: int
    price: Price


class IdempotencyClaim(msgspec.Struct, frozen=True):
    """Keyed digests of the name that the client gave its request, and of what it asked."""

    key_digest: bytes
    body_digest: bytes


class Reserve(Operation[Reserved], frozen=True):
    key_id: str
    class_id: str
    prompt_tokens: int
    output_tokens: int
    claim: IdempotencyClaim | None = None
    # How many holds of the key may live at once; None: any number.
    concurrent_requests: int | None = None
    # All the output that there may be, where it would rather be held at once; 0: it is held as it grows.
    whole_output_tokens: int = 0


class Extended(msgspec.Struct, frozen=True):
    extended: bool
    # As asked, so that a late answer is not taken for another's.
    total_nanos: int
    held_nanos: int
    # The largest total that the account could hold now, and if none of its other requests were running.
    affordable_nanos: int
    balance_nanos: int


class Extend(Operation[Extended], frozen=True):
    """`total_nanos` is absolute. A total that is held already makes this a checkpoint, and nothing else."""

    total_nanos: int
    delivered: Usage


class Checkpointed(msgspec.Struct, frozen=True):
    pass


class Checkpoint(Operation[Checkpointed], frozen=True):
    delivered: Usage


class Settled(msgspec.Struct, frozen=True):
    charged_nanos: int
    loss_nanos: int


class Settle(Operation[Settled], frozen=True):
    usage: Usage
    basis: Basis
    end: End


class Voided(msgspec.Struct, frozen=True):
    pass


class Void(Operation[Voided], frozen=True):
    end: End
    key_id: str
    class_id: str
    # What may have been delivered, though nobody can be charged for it.
    lost: Usage = Usage()
    # What is charged though nothing was delivered: the prompt of a client that makes a habit of leaving.
    due: Usage = Usage()


class Swept(msgspec.Struct, frozen=True):
    """`swept` is False where somebody else resolved the hold in time."""

    swept: bool
    charged_nanos: int = 0
    loss_bound_nanos: int = 0


class Sweep(Operation[Swept], frozen=True):
    pass


class Grant(Operation[AccountBalance], frozen=True):
    """Here `request_id` is the id that the grant was given by whoever made it."""

    amount_nanos: int


class Adjust(Operation[AccountBalance], frozen=True):
    """Here `request_id` is the id that the adjustment was given by whoever made it."""

    amount_nanos: int
    reason: str
