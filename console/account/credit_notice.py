"""Credit that is used up, or soon will be."""

from dataclasses import dataclass
from typing import Final

from legato_protos.metering.v1 import metering_pb2 as pb
from services.rules.cost import least_hold_nanos

PACE_DAYS: Final = 7
# Credit is low, too, if it lasts for fewer days at the pace of the last ones.
LOW_DAYS: Final = 3


@dataclass(frozen=True, slots=True)
class CreditNotice:
    """Credit that needs attention: what is left of it."""

    left_nanos: int
    owed_nanos: int
    # No request can be paid for.
    is_out: bool
    # At the pace of the last days; None: nothing was spent in them.
    lasts_days: int | None


def notice_of(answer: pb.GetBalanceResponse) -> CreditNotice | None:
    """Returns what there is to say; None: there is credit enough, or the owners want no notice of low credit."""
    balance, outlook = answer.balance, answer.outlook
    left_nanos = balance.balance_nanos - balance.owed_nanos
    lasts_days = left_nanos * PACE_DAYS // outlook.spent_7_days_nanos if outlook.spent_7_days_nanos else None
    is_out = bool(balance.owed_nanos) or left_nanos <= least_hold_nanos(answer.least_input_nanos_per_million)
    is_low = left_nanos < outlook.low_balance_nanos or (lasts_days is not None and lasts_days < LOW_DAYS)
    if not is_out and not (is_low and outlook.low_balance_nanos):
        return None
    return CreditNotice(max(left_nanos, 0), balance.owed_nanos, is_out, lasts_days)
