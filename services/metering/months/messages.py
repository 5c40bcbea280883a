"""Converts closed months between the .proto's messages and the domain."""

from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.metering.credit.calendar import CalendarMonth, parse_month
from services.metering.credit.ledger.closings import Closing
from services.metering.messages import invalid


def to_month(text: str) -> CalendarMonth:
    try:
        return parse_month(text)
    except ValueError:
        raise invalid(Sentence("month_form"), "month") from None


def from_closing(closing: Closing, pruned_before_us: int) -> pb.Closing:
    return to_message(
        pb.Closing,
        closing,
        month=str(closing.month),
        is_pruned=closing.month_us < pruned_before_us,
    )
