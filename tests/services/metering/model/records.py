"""Records of the second set of books: a request, a claim, and a refusal."""

from dataclasses import dataclass, field
from typing import NamedTuple

from services.chassis.errors import Reason
from services.metering.credit.records import Basis, End, State
from services.rules.usage import Usage


class Refusal(NamedTuple):
    reason: Reason
    # Tokens were served that were not reserved: an operator must look.
    alarms: bool = False
    original_request_id: str | None = None
    # Of a spend limit.
    retry_after_s: float | None = None


@dataclass
class Request:
    account_id: str
    key_id: str
    class_id: str
    state: State = "held"
    price_version: int = 0
    amount_nanos: int = 0
    overdue: bool = False
    # The last checkpoint while it is held; what was billed, or lost, afterwards.
    usage: Usage = field(default_factory=Usage)
    # The hours in which usage counts its charge and its late charge.
    counted_hour_us: int | None = None
    late_hour_us: int | None = None
    charge_nanos: int = 0
    late_charge_nanos: int = 0
    loss_nanos: int = 0
    loss_bound_nanos: int = 0
    basis: Basis | None = None
    end: End | None = None

    @property
    def charged_nanos(self) -> int:
        return self.charge_nanos + self.late_charge_nanos


@dataclass
class Claim:
    request_id: str
    body_digest: bytes
    # Made more than a day ago.
    old: bool = False
