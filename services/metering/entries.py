"""Builds the ledger entries of charges and losses."""

from typing import Final

from services.metering.records import HOUR_US, Basis, End, Entry, Hold, Kind, Usage
from services.metering.rule_context import RuleContext

# Reasons of losses: neither the hold nor free credit covered it; or its delivery is unconfirmed.
BEYOND_CREDIT: Final = "beyond_credit"
NOT_CONFIRMED: Final = "not_confirmed"


_NOTHING: Final = Usage()


def booking(
    kind: Kind,
    hold: Hold,
    usage: Usage,
    cost_nanos: int,
    charge_nanos: int,
    basis: Basis,
    end: End,
    context: RuleContext,
) -> Entry:
    """Builds the entry that a charge adds to the request's earlier ones."""
    counted = hold.usage if hold.counted_hour_us is not None else _NOTHING
    hour_us = hold.counted_hour_us
    loss_nanos = cost_nanos - hold.booked_nanos - charge_nanos
    return Entry(
        kind=kind,
        request_id=hold.request_id,
        account_id=hold.account_id,
        customer_nanos=-charge_nanos,
        revenue_nanos=cost_nanos - hold.booked_nanos,
        loss_nanos=-loss_nanos,
        recorded_at_us=context.now_us,
        key_id=hold.key_id,
        class_id=hold.class_id,
        price_version=hold.price_version,
        hour_us=context.now_us - context.now_us % HOUR_US if hour_us is None else hour_us,
        requests=1 if hour_us is None else 0,
        prompt_tokens=usage.prompt_tokens - counted.prompt_tokens,
        cached_tokens=usage.cached_tokens - counted.cached_tokens,
        completion_tokens=usage.completion_tokens - counted.completion_tokens,
        basis=basis,
        end=end,
        reason=BEYOND_CREDIT if loss_nanos else None,
    )
