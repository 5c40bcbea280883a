"""Notices to an account's owners that a batch gives rise to: a low balance, and spend limits. Pure rules.

A notice is a crossing: the figure was on one side before the batch and is on the other after it. So it comes once, and
again only after the figure was back. Its id follows from what it says, so that writing it twice writes it once.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from services.metering.credit.ledger.spend import Allowance, Period, Spend, SpendBook, SpendLimitRefusal
from services.metering.credit.records import AccountBalance

NoticeKind = Literal["balance.low", "spend_limit.near", "spend_limit.reached"]


class NoticeRules(msgspec.Struct, frozen=True):
    """The thresholds of notices; zero: never."""

    # Of accounts without a threshold of their own.
    low_balance_nanos: int = 0
    # The part of a spend limit at which it counts as near.
    near_percent: int = 0


NO_NOTICES: Final = NoticeRules()


class AccountNotice(msgspec.Struct, frozen=True):
    """Fields are the table's columns."""

    notice_id: str
    kind: NoticeKind
    account_id: str
    # Empty: the account as a whole.
    key_id: str
    # Of a spend limit; empty otherwise.
    period: Period | Literal[""]
    # The balance, or what was spent in the period.
    amount_nanos: int
    # What it was compared with: the account's threshold, or the spend limit.
    threshold_nanos: int
    recorded_at_us: int


def find_low_balances(
    found: Iterable[AccountBalance], after: dict[str, AccountBalance], rules: NoticeRules, now_us: int
) -> Iterator[AccountNotice]:
    """Yields a notice for each account whose balance has fallen below its threshold."""
    for before in found:
        account = after[before.account_id]
        if account.balance_nanos >= before.balance_nanos:
            continue
        own_nanos = before.low_balance_nanos
        threshold_nanos = rules.low_balance_nanos if own_nanos is None else own_nanos
        if before.balance_nanos >= threshold_nanos > account.balance_nanos:
            amounts = account.balance_nanos, threshold_nanos
            yield _notice("balance.low", account.account_id, "", "", amounts, now_us, now_us)


def find_near_limits(book: SpendBook, rules: NoticeRules, now_us: int) -> Iterator[AccountNotice]:
    """Yields a notice for each spend limit of which a charge has used up the larger part."""
    if not rules.near_percent:
        return
    for subject_id, found in book.found.items():
        spend = book.spends[subject_id]
        if spend.total_spent_nanos == found.total_spent_nanos:
            continue
        before = found.at(now_us)
        for each in spend.allowances():
            near_nanos = each.limit_nanos * rules.near_percent // 100
            if getattr(before, f"{each.period}_spent_nanos") < near_nanos <= each.spent_nanos:
                yield limit_notice("spend_limit.near", spend.account_id, spend.key_id, each, spend, now_us)


def reached_limit(
    refusal: SpendLimitRefusal, account_id: str, key_id: str, book: SpendBook, now_us: int
) -> AccountNotice:
    """Returns the notice of the limit that a request was refused for: the same for every request of the period."""
    allowance = refusal.allowance
    subject_key = key_id if allowance.is_of_key else ""
    spend = book.spend_of(account_id, subject_key)
    return limit_notice("spend_limit.reached", account_id, subject_key, allowance, spend, now_us)


def limit_notice(
    kind: NoticeKind, account_id: str, key_id: str, allowance: Allowance, spend: Spend, now_us: int
) -> AccountNotice:
    # A limit that is raised can be reached again.
    begins_us = {"day": spend.day_us, "month": spend.month_us, "total": 0}[allowance.period]
    amounts = allowance.spent_nanos, allowance.limit_nanos
    return _notice(kind, account_id, key_id, allowance.period, amounts, begins_us, now_us)


def _notice(
    kind: NoticeKind,
    account_id: str,
    key_id: str,
    period: Period | Literal[""],
    amounts: tuple[int, int],
    occasion_us: int,
    now_us: int,
) -> AccountNotice:
    """Builds a notice; those with the same occasion and threshold are the same."""
    subject = "\n".join([kind, account_id, key_id, period, str(amounts[1]), str(occasion_us)])
    notice_id = "ntc_" + hashlib.sha256(subject.encode()).hexdigest()[:32]
    return AccountNotice(notice_id, kind, account_id, key_id, period, *amounts, now_us)
