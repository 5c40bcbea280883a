"""Compares the three books of every request of a round. The rules are the bounds of docs/faults.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from services.metering.credit.ledger.holds import BEYOND_SPEND_LIMIT
from services.metering.credit.ledger.spend import WHOLE_ACCOUNT
from services.metering.credit.prices import Price
from services.rules.usage import Usage
from tests.campaigns.faults.books.ledger import Account
from tests.campaigns.faults.chat import Chat, Tokens

Kind = Literal["lost", "doubled", "stuck", "audit"]


@dataclass(frozen=True)
class Violation:
    kind: Kind
    what: str
    chat: Chat | None = None


@dataclass(frozen=True)
class Circumstances:
    """The events of a round."""

    # Some edge was killed: a connection may have ended without a word, with one piece counted and not delivered.
    edge_died: bool = False
    # It may have been killed between a first delivery and the mark for it, so that one request may be free.
    mark_missed: bool = False
    # It was away until its holds were given up; a settlement that comes later still counts.
    was_away: bool = False
    # Its journal went with it: only what metering knew before that, by account, is sure to be charged.
    journal_lost: bool = False
    checkpoints: Mapping[str, Tokens] = field(default_factory=dict)
    # What a spend limit left, by account.
    left_nanos: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Verdict:
    violations: list[Violation] = field(default_factory=list)
    # Requests that are not paid for, because the edge died after the first delivery and before the mark for it.
    free: int = 0
    # Requests that the service counted itself, because the provider sent their usage too late.
    late: int = 0


def judge(
    chats: Sequence[Chat],
    accounts: Mapping[str, Account],
    prompt_tokens: Mapping[str, int],
    prices: Mapping[str, Price],
    seen: Circumstances,
) -> Verdict:
    """`accounts` by account, `prompt_tokens` by the chat's tag as the router counts them, `prices` by class."""
    verdict = Verdict()
    for chat in chats:
        account, price = accounts[chat.customer.account_id], prices[chat.part.model]
        verdict.violations += _judge_ends(chat, account, seen)
        verdict.violations += _judge_amounts(chat, account, price, seen)
        verdict.violations += _judge_limits(chat, account)
        verdict.violations += _judge_answer(chat, prompt_tokens[chat.tag])
        verdict.late += _is_late(chat, prompt_tokens[chat.tag])
        if seen.mark_missed and not verdict.free and _is_free(chat, account):
            verdict.free += 1
            continue
        bounds = _bounds(chat, prompt_tokens[chat.tag], seen)
        verdict.violations += _judge_tokens(chat, account, price, bounds, seen)
    return verdict


def _judge_ends(chat: Chat, account: Account, seen: Circumstances) -> list[Violation]:
    found: list[Violation] = []
    if chat.received.hung:
        found.append(Violation("stuck", "the client was left without an end", chat))
    if chat.received.ending == "broken" and not seen.edge_died:
        found.append(Violation("stuck", "the connection ended without a word, and no edge was killed", chat))
    if account.held_nanos or any(hold.state == "held" for hold in account.holds):
        found.append(Violation("stuck", f"{account.held_nanos} nanos are still held", chat))
    return found


def _judge_answer(chat: Chat, prompt_tokens: int) -> list[Violation]:
    """Checks that a client who sees the end has all of it, and its usage."""
    received = chat.received
    if received.ending != "done" or received.ended_early or _is_late(chat, prompt_tokens):
        return []
    if received.tokens == chat.part.tokens and received.usage == chat.provider_usage:
        return []
    what = f"the client has {received.tokens} of {chat.part.tokens} tokens, and was told {_told(received.usage)}"
    return [Violation("doubled", what, chat)]


def _judge_amounts(chat: Chat, account: Account, price: Price, seen: Circumstances) -> list[Violation]:
    found: list[Violation] = []
    kinds = [entry.kind for entry in account.charges]
    if len(account.holds) > 1 or len(kinds) > len(set(kinds)):
        found.append(Violation("doubled", f"{len(account.holds)} holds and {kinds}", chat))
    # A call that is cut before anything was delivered is repeated once.
    if len(chat.asked) > (2 if chat.part.cut_after == 0 else 1):
        found.append(Violation("doubled", f"the provider was asked {len(chat.asked)} times", chat))
    cost_nanos = _cost(price, account.charged)
    # Whatever it costs, no more than a limit leaves is charged, and no less.
    due_nanos = min(cost_nanos, seen.left_nanos.get(chat.customer.account_id, cost_nanos))
    if account.charged_nanos != due_nanos:
        kind: Kind = "doubled" if account.charged_nanos > due_nanos else "lost"
        of_limit = "" if due_nanos == cost_nanos else f", and a limit left {due_nanos}"
        found.append(
            Violation(kind, f"{account.charged_nanos} nanos for tokens that cost {cost_nanos}{of_limit}", chat)
        )
    if "late_charge" in kinds and not seen.was_away:
        found.append(Violation("lost", "its credit was given up while it ran", chat))
    if due_nanos < cost_nanos and -sum(entry.loss_nanos for entry in account.charges) != cost_nanos - due_nanos:
        found.append(Violation("lost", "what a limit kept from being charged is not booked as a loss", chat))
    if any(entry.reason != BEYOND_SPEND_LIMIT for entry in account.losses) and not seen.edge_died:
        found.append(Violation("lost", "a loss was booked, and no edge was killed", chat))
    return found


def _judge_limits(chat: Chat, account: Account) -> list[Violation]:
    """Checks that no limit is exceeded, and that what limits count is what the ledger says."""
    found: list[Violation] = []
    for spend in account.spends:
        charges = [each for each in account.charges_ever if spend.key_id in (WHOLE_ACCOUNT, each.key_id)]
        starts_us = (spend.day_us, spend.month_us, 0)
        charged = [sum(each.nanos for each in charges if each.hour_us >= start_us) for start_us in starts_us]
        counted = [spend.day_spent_nanos, spend.month_spent_nanos, spend.total_spent_nanos]
        if counted != charged or spend.held_nanos:
            what = f"{charged} nanos of a day, a month and in all were charged, and its limits count {counted}"
            found.append(Violation("lost", f"{what}, and {spend.held_nanos} held", chat))
        over = [each for each in spend.allowances() if each.spent_nanos > each.limit_nanos]
        found += [Violation("doubled", f"more was spent than a limit allows: {each}", chat) for each in over]
    return found


def _judge_tokens(
    chat: Chat, account: Account, price: Price, bounds: tuple[Tokens | None, Tokens | None], seen: Circumstances
) -> list[Violation]:
    charged, (least, most) = account.charged, bounds
    told = f"charged {_told(charged)}, right is {_told(least)}" + (f" to {_told(most)}" if most != least else "")
    if _cost(price, charged) > _cost(price, most):
        return [Violation("doubled", told, chat)]
    if _cost(price, charged) < _cost(price, least):
        return [Violation("lost", told, chat)]
    # Where a limit ends, a piece is cut.
    is_cut = chat.customer.account_id in seen.left_nanos
    if charged not in (least, most) and not seen.journal_lost and not is_cut:
        return [Violation("doubled", f"{told}, and nothing between", chat)]
    return []


def _bounds(chat: Chat, prompt_tokens: int, seen: Circumstances) -> tuple[Tokens | None, Tokens | None]:
    """The least and the most that may be charged. None: nothing."""
    least, most = _bounds_with_journal(chat, prompt_tokens, seen)
    if seen.journal_lost:
        least = seen.checkpoints.get(chat.customer.account_id)
    return least, most


def _bounds_with_journal(chat: Chat, prompt_tokens: int, seen: Circumstances) -> tuple[Tokens | None, Tokens | None]:
    received = chat.received
    delivered = Tokens(prompt_tokens, received.tokens) if received.tokens else None
    if received.ending == "done":
        by_count = received.ended_early or _is_late(chat, prompt_tokens)
        right = delivered if by_count else chat.provider_usage
        return right, right
    if received.ending == "refused" or delivered is None:
        return None, None
    if received.ending in ("told", "left") or not seen.edge_died:
        return delivered, delivered
    if chat.sent_end:
        # Its end may have been sealed, and not told any more.
        return delivered, chat.provider_usage
    return delivered, Tokens(prompt_tokens, max(chat.sent_tokens, received.tokens))


def _is_late(chat: Chat, prompt_tokens: int) -> bool:
    """The provider's usage came too late, and the client has all of it and was told our count instead."""
    received, whole = chat.received, chat.part.tokens
    return (
        chat.usage_was_late
        and received.ending == "done"
        and received.tokens == whole
        and received.usage == Tokens(prompt_tokens, whole)
    )


def _is_free(chat: Chat, account: Account) -> bool:
    """Killed between the first delivery and the mark for it: it is not paid, and the books say so."""
    first_tokens = chat.part.piece_tokens if chat.part.streamed else chat.part.tokens
    return 0 < chat.received.tokens <= first_tokens and account.charged is None and bool(account.losses)


def _cost(price: Price, tokens: Tokens | None) -> int:
    return price.cost_nanos(Usage(tokens.prompt, 0, tokens.completion)) if tokens else 0


def _told(tokens: Tokens | None) -> str:
    return "nothing" if tokens is None else f"{tokens.prompt} + {tokens.completion} tokens"
