"""Checks that an account can pay for a large body at all, before the body is read.

The cost of a chat is known when its tokens are counted, and whether it can be paid when metering holds the credit. But
reading and checking sixteen megabytes for an account that has a cent costs CPU time that others need.
"""

from typing import Final

from edge.backends.auth import Principal
from edge.billing.metering import Metering
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.cost import MILLION

# Reading a smaller body costs no more than asking for the balance.
LARGE_BODY_BYTES: Final = 1024 * 1024
# Every chat body has at least one token per this many bytes: text has one per 4, or per 12 if every letter is written
# as an escape. The rest allows for whitespace between the fields, and for fields that are ignored.
BYTES_PER_TOKEN_MOST: Final = 64


async def check_affordable(metering: Metering, principal: Principal, body_bytes: int) -> None:
    """Raises CREDITS_EXHAUSTED if the account could not pay for such a body at any price, even with none of its credit
    held, and after what it owes. Credit may still be too low if this passes."""
    if body_bytes < LARGE_BODY_BYTES:
        return
    found = await metering.balance(principal.account_id)
    least_nanos = body_bytes // BYTES_PER_TOKEN_MOST * found.least_input_nanos_per_million // MILLION
    if found.balance.balance_nanos - found.balance.owed_nanos < least_nanos:
        raise LegatoError(Reason.CREDITS_EXHAUSTED, Sentence("prompt_size_credit"))
