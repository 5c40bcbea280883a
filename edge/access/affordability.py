"""Whether an account can pay for a large body at all, asked before the body is read.

What a chat costs is known when its tokens are counted, and that it can be paid for when metering holds the credit. But
to read and check sixteen megabytes for an account that has a cent is work that everybody else pays for.
"""

from typing import Final, Protocol

from edge.principal import Principal
from edge.wire.asgi import HttpScope
from protos.metering.v1.metering_pb2 import GetBalanceResponse
from services.chassis.errors import LegatoError, Reason

# To read a smaller one costs no more than to ask for the balance.
LARGE_BODY_BYTES: Final = 256 * 1024
# No body of a chat has fewer tokens than one for so many bytes: text has one for 4, and for 12 where every letter is
# written as an escape. The rest is for spaces between the fields, and for fields that nobody reads.
BYTES_PER_TOKEN_MOST: Final = 64

_MILLION: Final = 1_000_000


class Balances(Protocol):
    async def balance(self, account_id: str) -> GetBalanceResponse: ...


def announced_bytes(scope: HttpScope) -> int | None:
    """None: the body comes in chunks, and nobody knows how many."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


async def check_affordable(balances: Balances, principal: Principal, body_bytes: int) -> None:
    """Raises CREDITS_EXHAUSTED where the account could not pay for such a body by any price, even if none of its credit
    were held. Who is let pass may still have too little."""
    if body_bytes < LARGE_BODY_BYTES:
        return
    told = await balances.balance(principal.account_id)
    least_nanos = body_bytes // BYTES_PER_TOKEN_MOST * told.least_input_nanos_per_million // _MILLION
    if told.balance.balance_nanos < least_nanos:
        raise LegatoError(Reason.CREDITS_EXHAUSTED, "The credit of this account does not cover a prompt of this size.")
