"""Decides whether a request may use its Idempotency-Key: pure rules, like the ledger's.

A key belongs to the request that reserved credit under it. Only a request that was voided, with nothing delivered,
frees it before it expires: one that was swept may still be charged.
"""

from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.records import HOUR_US, Claim, Hold, IdempotencyClaim

CLAIM_LIFE_US: Final = 24 * HOUR_US


def refuse_repeat(asked: IdempotencyClaim, found: Claim | None, claimant: Hold | None, now_us: int) -> None:
    """Raises if the key is in use; `claimant` is its owner's hold."""
    if found is None or found.claimed_at_us < now_us - CLAIM_LIFE_US:
        return
    if claimant is not None and claimant.state == "void":
        return
    if found.body_digest != asked.body_digest:
        message = "This Idempotency-Key was used for another request. Use a new key for each request."
        raise LegatoError(Reason.IDEMPOTENCY_KEY_REUSED, message, param="Idempotency-Key")
    raise LegatoError(
        Reason.REQUEST_REPEATED,
        f"A request with this Idempotency-Key is running or has ended: {found.request_id}.",
        original_request_id=found.request_id,
    )
