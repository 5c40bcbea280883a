"""One round: some chats at once, one fault, everything back, and the books compared."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from services.metering.credit.ledger.spend import PERIODS
from services.metering.credit.prices import Price, read_prices
from services.metering.settings import MeteringSettings
from services.router.prompts.prompt import compose_prompt, load_character
from services.rules.usage import Usage
from tests.campaigns.faults.books.card_payments import judge_owed
from tests.campaigns.faults.books.judge import Circumstances, Kind, Violation, judge
from tests.campaigns.faults.books.ledger import Account, first_request_id
from tests.campaigns.faults.chat import Chat, Customer
from tests.campaigns.faults.client import converse
from tests.campaigns.faults.harnesses.harness import FaultHarness
from tests.campaigns.faults.harnesses.parts import WHOLE
from tests.campaigns.faults.harnesses.reaper import Reaper, looks
from tests.campaigns.faults.points import Point
from tests.support.waiting import WAIT_TIMEOUT_S

# Enough for any cast, each with more than all its rounds cost.
CUSTOMERS: Final = 8
CREDIT_NANOS: Final = 5 * 10**9
# Told by a service that is slow today, and charges nothing.
BUSY: Final = 503
# What a limit leaves a chat, of what it costs.
LEFT: Final = (0.1, 1.3)

_numbers = itertools.count(1)


class Stuck(Exception):
    """The harness did not come to rest: says what is still open."""


@dataclass
class Outcome:
    point: Point
    seed: int
    passes: int
    # The fault happened.
    reached: bool = False
    chats: list[Chat] = field(default_factory=list)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    free: int = 0
    late: int = 0
    # The harness is not at rest, and not fit for another round.
    is_stuck: bool = False


class Stage:
    """A harness, and the customers who chat in it round after round."""

    def __init__(self, harness: FaultHarness, customers: list[Customer], guest: Customer, timeout_s: float) -> None:
        """`guest` asks after every round whether the harness serves."""
        self._harness = harness
        self._customers = customers
        self._guest = guest
        self._timeout_s = timeout_s
        self._balances: dict[str, int] = {}
        self._credited: dict[str, int] = {}
        self._prices: Mapping[str, Price] = read_prices(MeteringSettings().prices).current
        self._character = load_character()

    @classmethod
    async def prepare(
        cls, harness: FaultHarness, credit_nanos: int = CREDIT_NANOS, timeout_s: float = WAIT_TIMEOUT_S
    ) -> "Stage":
        """`timeout_s` is how long anything may be open after the last chat has ended."""
        customers = await harness.new_customers(CUSTOMERS, credit_nanos)
        [guest] = await harness.new_customers(1, CREDIT_NANOS)
        stage = cls(harness, customers, guest, timeout_s)
        found = harness.ledger.accounts_since(first_request_id(), [customer.account_id for customer in customers])
        stage._balances = {account_id: account.balance_nanos for account_id, account in found.items()}
        stage._credited = {account_id: account.credited_nanos for account_id, account in found.items()}
        await stage._probe()
        return stage

    async def play(self, point: Point, seed: int) -> Outcome:
        harness, dice = self._harness, random.Random(seed)
        outcome = Outcome(point, seed, passes=dice.randint(1, point.most_passes))
        outcome.chats = self._cast(point, dice)
        harness.provider.expect(outcome.chats)
        left_nanos = await self._limit(outcome.chats, dice) if point.limited else {}
        began = datetime.now(UTC).date()
        died_before, since = harness.deaths(), first_request_id()
        reaper = Reaper(harness, point, outcome.passes, dice, outcome.chats, since)
        reaping = asyncio.create_task(reaper.work(self._timeout_s))
        try:
            paying = self._pay(outcome.chats, point, random.Random(seed)) if point.paid else _nothing()
            conversing = (converse(chat, harness.address, WAIT_TIMEOUT_S) for chat in outcome.chats)
            await asyncio.gather(*conversing, paying)
            await reaping
            if point.month_ends:
                await self._retain(died_before)
            await self._quiet(outcome.chats)
            outcome.reached = not harness.is_armed(point.place)
            harness.disarm()
            await self._probe()
            await self._quiet(outcome.chats)
        except Stuck as stuck:
            outcome.reached = not harness.is_armed(point.place)
            outcome.violations.append(Violation("stuck", str(stuck)))
            outcome.is_stuck = True
        died = {name.partition("-")[0] for name in harness.deaths() - died_before}
        if point.how not in ("frozen", "paused", "none dies"):
            outcome.reached = outcome.reached and bool(died) and point.process in (*died, "everything")
        edge_died = "edge" in died
        seen = Circumstances(
            edge_died=edge_died,
            mark_missed=edge_died and point.may_miss_mark,
            was_away=point.waits_for_sweep,
            journal_lost=point.loses_journal,
            checkpoints=reaper.checkpoints,
            # Another day has room of its own.
            left_nanos=left_nanos if datetime.now(UTC).date() == began else {},
        )
        await self._compare(outcome, since, seen)
        if point.month_ends and not outcome.is_stuck:
            outcome.violations += [Violation("audit", each) for each in await harness.ledger.audit()]
        if point.repeats and not outcome.violations:
            await self._repeat(outcome)
        return outcome

    async def _pay(self, chats: list[Chat], point: Point, dice: random.Random) -> None:
        assert self._harness.cards is not None
        try:
            async with asyncio.timeout(self._timeout_s):
                account_ids = [chat.customer.account_id for chat in chats]
                await self._harness.cards.go_on(account_ids, dice, takes_all=point.owes)
        except TimeoutError:
            raise Stuck("an event of a payment is not accepted") from None

    async def _retain(self, died_before: Counter[str]) -> None:
        """Waits until everything is closed and pruned that is due. Its process may be dead: then another process
        goes on once its lease is over."""
        clock, dead = self._harness.clock, _count_meterings(died_before)
        assert clock is not None
        due = ""
        async for _ in looks(self._timeout_s):
            if (now_dead := _count_meterings(self._harness.deaths())) > dead:
                dead = now_dead
                clock.end_leases()
            due = self._harness.ledger.due(clock.now_us)
            if not due:
                return
        raise Stuck(due)

    async def _limit(self, chats: list[Chat], dice: random.Random) -> dict[str, int]:
        """Sets a limit for each; returns what it leaves, by account."""
        left_nanos = {}
        for chat in chats:
            usage = Usage(chat.provider_usage.prompt, 0, chat.provider_usage.completion)
            nanos = round(self._prices[chat.part.model].cost_nanos(usage) * dice.uniform(*LEFT))
            of_key, period = dice.random() < 0.5, dice.choice(PERIODS)
            await self._harness.leave_to_spend(chat.customer, of_key=of_key, period=period, nanos=nanos)
            left_nanos[chat.customer.account_id] = nanos
        return left_nanos

    async def _repeat(self, outcome: Outcome) -> None:
        """Checks that only what was not charged is served again. A repeat that finds the service busy comes again."""
        charged = {name for name, account in outcome.accounts.items() if account.charges}
        repeats = outcome.chats
        async for _ in looks(self._timeout_s):
            since = first_request_id()
            repeats = [chat.again() for chat in repeats]
            self._harness.provider.expect(repeats)
            await asyncio.gather(*(converse(chat, self._harness.address, WAIT_TIMEOUT_S) for chat in repeats))
            try:
                await self._quiet(repeats)
            except Stuck as stuck:
                outcome.violations.append(Violation("stuck", str(stuck)))
                outcome.is_stuck = True
            outcome.violations += _judge_repeats(repeats, charged)
            outcome.chats = repeats
            await self._compare(outcome, since, Circumstances())
            repeats = [chat for chat in repeats if chat.received.status == BUSY]
            if not repeats or outcome.violations:
                return
        outcome.violations += [Violation("stuck", "its repeat was never served", chat) for chat in repeats]

    def _cast(self, point: Point, dice: random.Random) -> list[Chat]:
        parts = dice.sample(point.cast, len(point.cast))
        customers = dice.sample(self._customers, len(parts))
        tags = [_new_tag() for _ in parts]
        return [
            Chat(part, customer, tag, tag if point.repeats else "")
            for part, customer, tag in zip(parts, customers, tags, strict=True)
        ]

    async def _quiet(self, chats: list[Chat]) -> None:
        """Until every process serves, no credit is held, no slot is taken and the provider is left alone."""
        open_still = ""
        async for _ in looks(self._timeout_s):
            open_still = self._harness.open_still() or ", ".join(
                f"the provider still answers {chat.tag}" for chat in chats if chat.still_asked
            )
            if not open_still:
                return
        raise Stuck(open_still)

    async def _probe(self) -> None:
        """The harness serves again, from end to end."""
        said = b""
        async for _ in looks(self._timeout_s):
            chat = Chat(WHOLE, self._guest, _new_tag())
            self._harness.provider.expect_too(chat)
            await converse(chat, self._harness.address, WAIT_TIMEOUT_S)
            if chat.received.ending == "done":
                return
            said = bytes(chat.received.raw)
        raise Stuck(f"the harness does not serve: {said!r}")

    async def _compare(self, outcome: Outcome, since: str, seen: Circumstances) -> None:
        account_ids = [chat.customer.account_id for chat in outcome.chats]
        outcome.accounts = self._harness.ledger.accounts_since(since, account_ids)
        prompts = {
            chat.tag: (await compose_prompt(chat.messages_json, b"", self._character)).tokens for chat in outcome.chats
        }
        verdict = judge(outcome.chats, outcome.accounts, prompts, self._prices, seen)
        outcome.violations += verdict.violations
        outcome.free += verdict.free
        outcome.late += verdict.late
        for chat in outcome.chats:
            account_id = chat.customer.account_id
            account = outcome.accounts[account_id]
            credited_nanos = account.credited_nanos - self._credited[account_id]
            off_nanos = account.balance_nanos - (self._balances[account_id] - account.charged_nanos + credited_nanos)
            if off_nanos:
                kind: Kind = "lost" if off_nanos > 0 else "doubled"
                outcome.violations.append(Violation(kind, f"the balance is {off_nanos:+} nanos off", chat))
            if account.balance_nanos != account.sum_nanos:
                what = f"the balance is {account.balance_nanos}, and its entries add up to {account.sum_nanos}"
                outcome.violations.append(Violation("lost", what, chat))
            self._balances[account_id] = account.balance_nanos
            self._credited[account_id] = account.credited_nanos
            if self._harness.cards is not None and not outcome.is_stuck:
                found = [*self._harness.cards.judge(account_id, account.credits_ever), *judge_owed(account)]
                outcome.violations += [replace(violation, chat=chat) for violation in found]


def _judge_repeats(repeats: list[Chat], charged: set[str]) -> list[Violation]:
    found: list[Violation] = []
    for chat in repeats:
        is_charged, status = chat.customer.account_id in charged, chat.received.status
        if status != BUSY and (status == 409) != is_charged:
            found.append(Violation("doubled" if is_charged else "stuck", f"its repeat got status {status}", chat))
    return found


def _count_meterings(deaths: Counter[str]) -> int:
    return sum(count for name, count in deaths.items() if name.startswith("metering"))


async def _nothing() -> None: ...


def _new_tag() -> str:
    return f"chat-{next(_numbers):08x}"
