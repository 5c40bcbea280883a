"""Spend limits of accounts and keys: how much they may spend in a day, in a month and in all. Pure rules.

What was spent and what is held for running requests never exceeds a limit together, as long as the limit is not
lowered. A charge counts in the day and the month of the hour that usage counts it in, in UTC: a late charge in those of
the request's first charge, which may be over.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from services.chassis.changes import Settings
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.calendar import day_start_us, month_start_us, next_day_us, next_month_us
from services.metering.credit.records import COMMAND_LINE, ChangedBy, Entry, Hold, Operation, SpendLimitReached

Period = Literal["day", "month", "total"]

# The key of a limit that applies to the whole account.
WHOLE_ACCOUNT: Final = ""
# A request that would fit if others were not running is retried soon.
RETRY_AFTER_S: Final = 1.0


class SpendLimits(msgspec.Struct, frozen=True):
    """Limits for each period; None is unlimited."""

    day_nanos: int | None = None
    month_nanos: int | None = None
    total_nanos: int | None = None

    @property
    def settings(self) -> Settings:
        """The limits by their names in the audit log."""
        return {f"spend_{name}": nanos for name, nanos in asdict(self).items()}

    def within(self, outer: "SpendLimits") -> "SpendLimits":
        """Returns these limits, lowered where `outer` allows less."""
        return SpendLimits(
            *(_lower(mine, outer_nanos) for mine, outer_nanos in zip(_values(self), _values(outer), strict=True))
        )

    def excess_over(self, outer: "SpendLimits") -> Period | None:
        """Returns the first period in which these limits allow more than `outer`, where both have one."""
        for period, mine, outer_nanos in zip(PERIODS, _values(self), _values(outer), strict=True):
            if mine is not None and outer_nanos is not None and mine > outer_nanos:
                return period
        return None


PERIODS: Final[tuple[Period, ...]] = ("day", "month", "total")
_ADJECTIVES: Final[dict[Period, str]] = {"day": "daily", "month": "monthly", "total": "total"}


def _values(limits: SpendLimits) -> tuple[int | None, int | None, int | None]:
    return limits.day_nanos, limits.month_nanos, limits.total_nanos


def _lower(mine_nanos: int | None, outer_nanos: int | None) -> int | None:
    # A key without a limit keeps none: the account's applies anyway.
    if mine_nanos is None or outer_nanos is None:
        return mine_nanos
    return min(mine_nanos, outer_nanos)


class Spend(msgspec.Struct, frozen=True):
    """The spending of an account, or of one of its keys, and its limits. Fields are the table's columns."""

    # The account and the key, as one text.
    spend_id: str
    account_id: str
    key_id: str
    day_limit_nanos: int | None = None
    month_limit_nanos: int | None = None
    total_limit_nanos: int | None = None
    # When the day and the month began whose spending is counted.
    day_us: int = 0
    month_us: int = 0
    day_spent_nanos: int = 0
    month_spent_nanos: int = 0
    total_spent_nanos: int = 0
    # For running requests.
    held_nanos: int = 0
    # The spend of the key that this one has replaced: its limits and counters are those of both, and the ones here are
    # empty. Empty: it has its own.
    shared_spend_id: str = ""

    @property
    def limits(self) -> SpendLimits:
        return SpendLimits(self.day_limit_nanos, self.month_limit_nanos, self.total_limit_nanos)

    def at(self, now_us: int) -> "Spend":
        """Returns it with the counters of the day and the month of `now_us`."""
        day_us, month_us = day_start_us(now_us), month_start_us(now_us)
        if day_us <= self.day_us:
            return self
        is_new_month = month_us > self.month_us
        return replace(
            self,
            day_us=day_us,
            day_spent_nanos=0,
            month_us=month_us,
            month_spent_nanos=0 if is_new_month else self.month_spent_nanos,
        )

    def after(self, charged_nanos: int, hour_us: int, held_change_nanos: int) -> "Spend":
        """Returns it after a charge that counts in that hour, and after a change of what is held."""
        return replace(
            self,
            day_spent_nanos=self.day_spent_nanos + (charged_nanos if hour_us >= self.day_us else 0),
            month_spent_nanos=self.month_spent_nanos + (charged_nanos if hour_us >= self.month_us else 0),
            total_spent_nanos=self.total_spent_nanos + charged_nanos,
            held_nanos=self.held_nanos + held_change_nanos,
        )

    def allowances(self) -> "list[Allowance]":
        spent = self.day_spent_nanos, self.month_spent_nanos, self.total_spent_nanos
        return [
            Allowance(period, limit_nanos, spent_nanos, self.held_nanos, self.key_id != WHOLE_ACCOUNT)
            for period, limit_nanos, spent_nanos in zip(PERIODS, _values(self.limits), spent, strict=True)
            if limit_nanos is not None
        ]


class Allowance(NamedTuple):
    """One limit and its use."""

    period: Period
    limit_nanos: int
    spent_nanos: int
    held_nanos: int
    is_of_key: bool

    @property
    def free_nanos(self) -> int:
        """The most that a new request may hold."""
        return max(0, self.limit_nanos - self.spent_nanos - self.held_nanos)

    @property
    def unspent_nanos(self) -> int:
        """The most that a request may hold if no other runs."""
        return max(0, self.limit_nanos - self.spent_nanos)

    def is_below(self, total_nanos: int) -> bool:
        """Returns whether a request costs more than a whole day's or month's limit: not even a new one helps."""
        return self.limit_nanos < total_nanos and self.period != "total"


class PastPeriod(NamedTuple):
    """A day or a month of an account, or of a key, that is over."""

    spend_id: str
    period: Period
    start_us: int


def past_periods(subject_id: str, hour_us: int, now_us: int) -> list[PastPeriod]:
    """Returns the day and the month of an hour, as far as they are over."""
    day_us, month_us = day_start_us(hour_us), month_start_us(hour_us)
    found: list[PastPeriod] = []
    if day_us < day_start_us(now_us):
        found.append(PastPeriod(subject_id, "day", day_us))
    if month_us < month_start_us(now_us):
        found.append(PastPeriod(subject_id, "month", month_us))
    return found


class SpendRoom(NamedTuple):
    """The amounts that a request's limits leave; without allowances, no limit applies."""

    allowances: tuple[Allowance, ...] = ()

    def of_free(self, free_nanos: int) -> int:
        """Returns how much of the account's free credit may be held or charged."""
        if not self.allowances:
            return free_nanos
        return min([free_nanos, *(each.free_nanos for each in self.allowances)])

    def of_balance(self, balance_nanos: int) -> int:
        """Returns how much of the balance a request could hold if no other was running."""
        return min([balance_nanos, *(each.unspent_nanos for each in self.allowances)])

    def refuse(self, least_nanos: int, now_us: int) -> None:
        """Raises if a request that needs `least_nanos` does not fit."""
        if not self.allowances:
            return
        over = self._over(least_nanos)
        if over is not None:
            reached = _reached(over, least_nanos, now_us)
            reason = Reason.SPEND_LIMIT_SPENT if reached.retry_after_s is None else Reason.SPEND_LIMIT_EXCEEDED
            if over.is_below(least_nanos):
                raise LegatoError(reason, reached.sentence)
            raise SpendLimitRefusal(reason, reached, over)
        held = next((each for each in self.allowances if each.free_nanos < least_nanos), None)
        if held is not None:
            sentence = Sentence("spend_limit_held", **_figures(held))
            raise LegatoError(Reason.SPEND_LIMIT_EXCEEDED, sentence, retry_after_s=RETRY_AFTER_S)

    def limit_reached(self, total_nanos: int, now_us: int) -> SpendLimitReached | None:
        """Returns the limit that leaves a request less than this, whether or not others run; the one that lasts
        longest."""
        over = self._over(total_nanos)
        return None if over is None else _reached(over, total_nanos, now_us)

    def _over(self, total_nanos: int) -> Allowance | None:
        over = [each for each in self.allowances if each.unspent_nanos < total_nanos]
        too_small = next((each for each in over if each.is_below(total_nanos)), None)
        return too_small or max(over, key=lambda each: PERIODS.index(each.period), default=None)


NO_LIMITS: Final = SpendRoom()


class SpendLimitRefusal(LegatoError):
    """A limit is spent, whatever else runs."""

    def __init__(self, reason: Reason, reached: SpendLimitReached, allowance: Allowance) -> None:
        super().__init__(reason, reached.sentence, retry_after_s=reached.retry_after_s)
        self.allowance = allowance


def _reached(allowance: Allowance, total_nanos: int, now_us: int) -> SpendLimitReached:
    if allowance.is_below(total_nanos):
        return SpendLimitReached(Sentence("spend_limit_too_small", **_figures(allowance)))
    if allowance.period == "total":
        return SpendLimitReached(Sentence("spend_limit_spent", **_figures(allowance)))
    until_us = next_day_us(now_us) if allowance.period == "day" else next_month_us(now_us)
    start = "at midnight" if allowance.period == "day" else "on the first of the month"
    sentence = Sentence("spend_limit_until", **_figures(allowance), when=start)
    return SpendLimitReached(sentence, (until_us - now_us) / 1_000_000)


def _figures(allowance: Allowance) -> dict[str, str]:
    return {"whose": "key's" if allowance.is_of_key else "account's", "period": _ADJECTIVES[allowance.period]}


class SetSpendLimits(Operation[Spend], frozen=True):
    """Replaces the limits of an account, or of one of its keys."""

    account_id: str
    key_id: str
    limits: SpendLimits
    # For the audit log; None: it has the limits with the key's creation.
    changed_by: ChangedBy | None = COMMAND_LINE


class InheritSpendLimits(SetSpendLimits, frozen=True, kw_only=True):
    """Lets a key share the limits of the one that it replaces, unless it has, or had, limits itself."""

    replaced_key_id: str


def spend_id(account_id: str, key_id: str) -> str:
    return f"{account_id}/{key_id}"


def subject_id_of(spends: Mapping[str, Spend], account_id: str, key_id: str) -> str:
    """Returns the id of the spend whose limits and counters apply to a key."""
    own_id = spend_id(account_id, key_id)
    found = spends.get(own_id)
    return own_id if found is None or not found.shared_spend_id else found.shared_spend_id


def with_limits(spend: Spend, limits: SpendLimits, account_limits: SpendLimits) -> Spend:
    """Returns it with other limits; refuses those of a key that exceed the account's."""
    period = limits.excess_over(account_limits) if spend.key_id != WHOLE_ACCOUNT else None
    if period is not None:
        sentence = Sentence("key_spend_limit_above_account", period=_ADJECTIVES[period])
        raise LegatoError(Reason.REQUEST_INVALID, sentence, param="limits")
    return replace(
        spend,
        day_limit_nanos=limits.day_nanos,
        month_limit_nanos=limits.month_nanos,
        total_limit_nanos=limits.total_nanos,
    )


class SpendBook:
    """The spends of a batch: operations see earlier ones' changes."""

    def __init__(
        self, found: Sequence[Spend], new: Sequence[Spend], now_us: int, past: Mapping[PastPeriod, int] | None = None
    ) -> None:
        """Starts from what was read; `new` is what subjects have spent that get their first limits; `past` is what was
        spent in periods that are over, where a late charge counts in one."""
        self._now_us = now_us
        self._past = dict(past or {})
        self.found = {spend.spend_id: spend for spend in found} if found else {}
        self.spends = {each: spend.at(now_us) for each, spend in self.found.items()} if found else {}
        self.new = {spend.spend_id: spend for spend in new} if new else {}
        # Only these are written: a new day by itself, or a refusal, leaves nothing.
        self.changed_ids: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.spends or self.new)

    def room(self, account_id: str, key_id: str, hour_us: int | None = None) -> SpendRoom:
        """Returns what the limits of an account and of one of its keys leave to a charge that counts in an hour; None
        is now."""
        found = (self.spends.get(subject_id_of(self.spends, account_id, each)) for each in {WHOLE_ACCOUNT, key_id})
        return SpendRoom(
            tuple(each for spend in found if spend is not None for each in self._allowances(spend, hour_us))
        )

    def _allowances(self, spend: Spend, hour_us: int | None) -> list[Allowance]:
        allowances = spend.allowances()
        if not self._past or hour_us is None:
            return allowances
        past = {each.period: self._past.get(each) for each in past_periods(spend.spend_id, hour_us, self._now_us)}
        return [
            # What is held now is spent in a later period.
            each
            if (spent_nanos := past.get(each.period)) is None
            else each._replace(spent_nanos=spent_nanos, held_nanos=0)
            for each in allowances
        ]

    def spend_of(self, account_id: str, key_id: str) -> Spend:
        return self.spends[subject_id_of(self.spends, account_id, key_id)]

    def count(self, before: Hold | None, after: Hold, entry: Entry | None) -> None:
        """Adds a charge, and a change of what is held, to the account and to the key."""
        held_before_nanos = before.amount_nanos if before is not None and before.state == "held" else 0
        held_change_nanos = (after.amount_nanos if after.state == "held" else 0) - held_before_nanos
        charged_nanos, hour_us = (0, 0) if entry is None else (-entry.customer_nanos, entry.hour_us)
        if not held_change_nanos and not charged_nanos:
            return
        for key_id in {WHOLE_ACCOUNT, after.key_id}:
            subject_id = subject_id_of(self.spends, after.account_id, key_id)
            for spends in (self.spends, self.new):
                if (spend := spends.get(subject_id)) is not None:
                    spends[subject_id] = spend.after(charged_nanos, hour_us, held_change_nanos)
                    self.changed_ids.add(subject_id)
            if self._past and charged_nanos:
                for past in past_periods(subject_id, hour_us, self._now_us):
                    if past in self._past:
                        self._past[past] += charged_nanos

    def miscounted_account_ids(self) -> set[str]:
        """Returns the accounts that released more than was counted as held."""
        return {
            spend.account_id for each, spend in self.spends.items() if spend.held_nanos < 0 and each in self.changed_ids
        }

    def put(self, changed: Iterable[Spend]) -> None:
        """Replaces spends by others with the same ids, or adds them."""
        for spend in changed:
            self.new.pop(spend.spend_id, None)
            self.spends[spend.spend_id] = spend
            self.changed_ids.add(spend.spend_id)
