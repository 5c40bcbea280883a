"""Spend limits of an account and of its keys: what was spent of each, and the form that sets them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from console.display.language import N_, _, in_figures
from console.display.words import usd
from console.services import if_available
from console.web.forms import Form, Refusal, Rules, parse_dollars
from console.web.visit import Visit
from legato_protos.auth.v1.auth_pb2 import SetKeySpendLimitsRequest
from legato_protos.metering.v1 import spend_limits_pb2 as pb
from services.chassis.money import LARGEST_BOOKING_NANOS, format_usd

WHOLE_ACCOUNT: Final = ""
# A key that does not exist: lists the account alone, where no key at all would list every one.
NO_KEY: Final = "none"
# From here on a meter warns.
NEARLY_PERCENT: Final = 80
PERIODS: Final = {"day": N_("A day"), "month": N_("A month"), "total": N_("In all")}
_FIELD_LABELS: Final = {"day": N_("Dollars a day"), "month": N_("Dollars a month"), "total": N_("Dollars in all")}
_WITHIN: Final = {"day": N_("%(limit)s a day"), "month": N_("%(limit)s a month"), "total": N_("%(limit)s in all")}
_RENEWALS: Final = {
    "day": N_("Starts anew at midnight UTC"),
    "month": N_("Starts anew on the first of the month, UTC"),
    "total": N_("Never starts anew"),
}

# What a limit that is reached does to requests.
_REFUSALS: Final = {
    "day": N_("%(spent)s of %(limit)s a day is spent: new requests are refused until midnight UTC."),
    "month": N_("%(spent)s of %(limit)s a month is spent: new requests are refused until the first of the month, UTC."),
    "total": N_("%(spent)s of %(limit)s in all is spent: new requests are refused until the limit is raised."),
}

Spends = dict[str, pb.Spend]


@dataclass(frozen=True, slots=True)
class SpendMeter:
    """One limit, and what was spent of it."""

    period: str
    # None: unlimited.
    limit_nanos: int | None
    spent_nanos: int

    @property
    def title(self) -> str:
        return _(PERIODS[self.period])

    @property
    def renewal(self) -> str:
        return _(_RENEWALS[self.period])

    @property
    def field_label(self) -> str:
        return _(_FIELD_LABELS[self.period])

    @property
    def within(self) -> str:
        """Says the limit, for a key that cannot have more."""
        return _(_WITHIN[self.period], limit=usd(self.limit_nanos or 0))

    @property
    def field_value(self) -> str:
        return "" if self.limit_nanos is None else in_figures(format_usd(self.limit_nanos))

    @property
    def refusal(self) -> str:
        """Says what happens to requests now that the limit is reached."""
        return _(_REFUSALS[self.period], spent=usd(self.spent_nanos), limit=usd(self.limit_nanos or 0))

    @property
    def left_nanos(self) -> int:
        return (self.limit_nanos or 0) - self.spent_nanos

    @property
    def percent(self) -> int:
        """Rounds down: only what is spent entirely is 100."""
        if not self.limit_nanos:
            return 0 if self.limit_nanos is None else 100
        return min(100, 100 * self.spent_nanos // self.limit_nanos)

    @property
    def is_reached(self) -> bool:
        return self.limit_nanos is not None and self.percent == 100

    @property
    def is_nearly_reached(self) -> bool:
        return self.limit_nanos is not None and NEARLY_PERCENT <= self.percent < 100


def meters_of(spend: pb.Spend | None) -> list[SpendMeter]:
    """Returns a meter for each period, also where it has no limit."""
    found = spend or pb.Spend()
    return [
        SpendMeter(
            period,
            getattr(found.limits, f"{period}_nanos") if found.limits.HasField(f"{period}_nanos") else None,  # type: ignore[arg-type]
            getattr(found, f"{period}_spent_nanos"),
        )
        for period in PERIODS
    ]


def limited_meters(spend: pb.Spend | None) -> list[SpendMeter]:
    return [meter for meter in meters_of(spend) if meter.limit_nanos is not None]


def nearest_meter(spend: pb.Spend | None) -> SpendMeter | None:
    """Returns the limit of which most is spent."""
    return max(limited_meters(spend), key=lambda meter: meter.percent, default=None)


@dataclass(frozen=True, slots=True)
class SpendForm:
    """The form that sets the limits of an account or a key, with what was spent."""

    # None: nothing yet, or metering does not answer.
    spend: pb.Spend | None
    # Metering answers.
    is_known: bool

    @classmethod
    def of(cls, spends: Spends | None, key_id: str) -> "SpendForm":
        return cls((spends or {}).get(key_id), spends is not None)

    @property
    def meters(self) -> list[SpendMeter]:
        return meters_of(self.spend)


async def read_spends(visit: Visit, account_id: str, key_ids: Sequence[str] = ()) -> Spends | None:
    """Returns what the account and its keys have spent and may, by key; None if metering does not answer."""
    request = pb.ListSpendLimitsRequest(account_id=account_id, key_ids=key_ids)
    listed = await if_available(visit.metering.spend_limits.ListSpendLimits(request))
    return None if listed is None else {spend.key_id: spend for spend in listed.spends}


def limits_in(form: Form) -> pb.SpendLimits:
    """Reads the limits of a form that has nothing else."""
    with Rules(form) as rules:
        return limits_by(rules)


def limits_by(rules: Rules) -> pb.SpendLimits:
    limits = {}
    for period in PERIODS:
        nanos = rules.parse(parse_dollars, period, _("An amount in dollars such as 5.00, or nothing."))
        rules.require(0 <= (nanos or 0) <= LARGEST_BOOKING_NANOS, period, _("From 0 to a million dollars."))
        limits[f"{period}_nanos"] = nanos
    return pb.SpendLimits(**limits)


def periods_above(limits: pb.SpendLimits, of_account: Sequence[SpendMeter]) -> list[SpendMeter]:
    """Returns those of the account's limits that these would exceed."""
    return [meter for meter in of_account if getattr(limits, f"{meter.period}_nanos") > (meter.limit_nanos or 0)]


class LimitsReachedError(Refusal):
    """New limits of which all is spent already: they are set when they are confirmed."""

    needs_confirmation = True


async def checked(visit: Visit, account_id: str, key_id: str, limits: pb.SpendLimits) -> str:
    """Returns the name of the message that says that these limits are set. Asks first about limits that would refuse
    every request at once, unless the form sets them all the same."""
    before = (await read_spends(visit, account_id, [key_id or NO_KEY]) or {}).get(key_id)
    after = pb.Spend()
    after.MergeFrom(before or pb.Spend())
    after.limits.CopyFrom(limits)
    known = {meter.period: meter.limit_nanos for meter in meters_of(before)}
    reached = [meter for meter in limited_meters(after) if meter.is_reached]
    # Zero says itself that nothing may be spent.
    surprising = [meter for meter in reached if meter.limit_nanos and meter.limit_nanos != known[meter.period]]
    if surprising and not visit.form.has("reached"):
        raise LimitsReachedError({meter.period: meter.refusal for meter in surprising})
    return "spend-limits-reached" if reached else "spend-limits-set"


async def set_limits(visit: Visit, account_id: str, limits: pb.SpendLimits) -> None:
    """Sets the limits of the account as a whole."""
    await visit.metering.spend_limits.SetSpendLimits(pb.SetSpendLimitsRequest(account_id=account_id, limits=limits))


async def set_key_limits(visit: Visit, key_id: str, limits: pb.SpendLimits) -> None:
    request = SetKeySpendLimitsRequest(account_id=visit.account_id, key_id=key_id, spend_limits=limits)
    await visit.auth.key_admin.SetKeySpendLimits(request)
